"""TLS, SASL, delegation tokens and authorization."""

TABLE = """
authorizer.class.name STRING "" L fixed - nonnull
    Plugin that decides who may do what; empty means everybody may do all.
connections.max.reauth.ms LONG 0 M fixed -
    A SASL session must log in again after this time, in ms; 0 means never.
delegation.token.expiry.check.interval.ms LONG 3600000 L fixed - >=1
    How often tokens are checked for their end, in ms.
delegation.token.expiry.time.ms LONG 86400000 M fixed - >=1
    How long a token holds until it is renewed, in ms.
delegation.token.max.lifetime.ms LONG 604800000 M fixed - >=1
    After this time a token can no longer be renewed, in ms.
delegation.token.secret.key PASSWORD null M fixed -
    Secret that signs tokens; the same on every broker.
principal.builder.class CLASS org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder M broker -
    Plugin that gives a connection the name of its user.
sasl.client.callback.handler.class CLASS null M fixed -
    Plugin that answers for the client side of SASL.
sasl.enabled.mechanisms LIST GSSAPI M broker - list
    SASL mechanisms that clients may use.
sasl.jaas.config PASSWORD null M broker -
    Login for SASL in JAAS's form; on a broker for one listener and mechanism.
sasl.kerberos.kinit.cmd STRING /usr/bin/kinit M broker -
    Path of the kinit command.
sasl.kerberos.min.time.before.relogin LONG 60000 M broker -
    Least time between two Kerberos logins, in ms.
sasl.kerberos.principal.to.local.rules LIST DEFAULT M broker - list
    Rules that shorten Kerberos principals to user names.
sasl.kerberos.service.name STRING null M broker -
    Name under which the service is known to Kerberos.
sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 M broker -
    Share of chance in the time when a ticket is renewed.
sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 M broker -
    Part of a ticket's life after which it is renewed.
sasl.login.callback.handler.class CLASS null M fixed -
    Plugin that fetches what a SASL login needs.
sasl.login.class CLASS null M fixed -
    Plugin that does the SASL login.
sasl.login.connect.timeout.ms INT null L fixed -
    How long a connection to the token provider may take, in ms.
sasl.login.read.timeout.ms INT null L fixed -
    How long the token provider may take to answer, in ms.
sasl.login.refresh.buffer.seconds SHORT 300 M broker -
    Least time left of a token when it is refreshed, in seconds.
sasl.login.refresh.min.period.seconds SHORT 60 M broker -
    Least time between two refreshes of a token, in seconds.
sasl.login.refresh.window.factor DOUBLE 0.8 M broker -
    Part of a token's life after which it is refreshed.
sasl.login.refresh.window.jitter DOUBLE 0.05 M broker -
    Share of chance in the time when a token is refreshed.
sasl.login.retry.backoff.max.ms LONG 10000 L fixed -
    Longest pause before the token provider is asked again, in ms.
sasl.login.retry.backoff.ms LONG 100 L fixed -
    First pause before the token provider is asked again, in ms.
sasl.mechanism.controller.protocol STRING GSSAPI H fixed -
    SASL mechanism to log in at controllers.
sasl.mechanism.inter.broker.protocol STRING GSSAPI M broker -
    SASL mechanism to log in at other brokers.
sasl.oauthbearer.assertion.algorithm STRING RS256 M fixed - anycase(ES256|RS256)
    Algorithm that signs the assertion sent for a token.
sasl.oauthbearer.assertion.claim.aud STRING null M fixed -
    Audience in the assertion sent for a token.
sasl.oauthbearer.assertion.claim.exp.seconds INT 300 L fixed - 0..86400
    How long the assertion sent for a token holds, in seconds.
sasl.oauthbearer.assertion.claim.iss STRING null M fixed -
    Issuer in the assertion sent for a token.
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN false M fixed -
    Whether the assertion sent for a token has an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds INT 60 L fixed - 0..3600
    How far back the assertion sent for a token begins to hold, in seconds.
sasl.oauthbearer.assertion.claim.sub STRING null M fixed -
    Subject in the assertion sent for a token.
sasl.oauthbearer.assertion.file STRING null M fixed -
    File with a ready assertion to send for a token.
sasl.oauthbearer.assertion.private.key.file STRING null M fixed -
    File with the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD null M fixed -
    Passphrase of the key that signs assertions.
sasl.oauthbearer.assertion.template.file STRING null M fixed -
    File with the fixed parts of assertions.
sasl.oauthbearer.client.credentials.client.id STRING null M fixed -
    Client id to log in at the token provider.
sasl.oauthbearer.client.credentials.client.secret PASSWORD null M fixed -
    Client secret to log in at the token provider.
sasl.oauthbearer.clock.skew.seconds INT 30 L fixed -
    How far the clocks of provider and broker may differ, in seconds.
sasl.oauthbearer.expected.audience LIST "" H fixed - list
    Audiences of which a token must name one.
sasl.oauthbearer.expected.issuer STRING null H fixed -
    Issuer that a token must name.
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG 3600000 L fixed -
    How often the provider's keys are fetched, in ms.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG 10000 L fixed -
    Longest pause before the provider's keys are asked for again, in ms.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG 100 L fixed -
    First pause before the provider's keys are asked for again, in ms.
sasl.oauthbearer.jwks.endpoint.url STRING null M fixed -
    Where the provider's keys are.
sasl.oauthbearer.jwt.retriever.class CLASS org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever M fixed -
    Plugin that fetches tokens.
sasl.oauthbearer.jwt.validator.class CLASS org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator M fixed -
    Plugin that checks tokens.
sasl.oauthbearer.scope STRING null M fixed -
    Scope to ask for at the token provider.
sasl.oauthbearer.scope.claim.name STRING scope L fixed -
    Claim of a token that holds its scope.
sasl.oauthbearer.sub.claim.name STRING sub L fixed -
    Claim of a token that holds its user.
sasl.oauthbearer.token.endpoint.url STRING null M fixed -
    Where tokens are fetched.
sasl.server.callback.handler.class CLASS null M fixed -
    Plugin that answers for the server side of SASL.
sasl.server.max.receive.size INT 524288 M fixed -
    Largest message during a SASL login, in bytes.
security.inter.broker.protocol STRING PLAINTEXT M fixed + in(PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)
    Protocol between brokers, if inter.broker.listener.name is not set.
security.providers STRING null L fixed -
    Plugins that bring security algorithms.
ssl.allow.dn.changes BOOLEAN false L fixed -
    Whether a new certificate may have another subject.
ssl.allow.san.changes BOOLEAN false L fixed -
    Whether a new certificate may have other alternative names.
ssl.cipher.suites LIST "" M broker - list
    Ciphers that may be used; empty means the library's own.
ssl.client.auth STRING none M broker - in(required|requested|none)
    Whether clients show a certificate: required, requested or none.
ssl.enabled.protocols LIST TLSv1.2,TLSv1.3 M broker - list
    Versions of TLS that may be used.
ssl.endpoint.identification.algorithm STRING https L broker -
    How a peer's name is checked against its certificate; empty means not.
ssl.engine.factory.class CLASS null L broker -
    Plugin that makes TLS engines.
ssl.key.password PASSWORD null M broker -
    Password of the private key.
ssl.keymanager.algorithm STRING SunX509 M broker -
    Algorithm that picks the key to show.
ssl.keystore.certificate.chain PASSWORD null M broker -
    Certificate chain as PEM text.
ssl.keystore.key PASSWORD null M broker -
    Private key as PEM text.
ssl.keystore.location STRING null M broker -
    File with the key and its certificates.
ssl.keystore.password PASSWORD null M broker -
    Password of the key store.
ssl.keystore.type STRING JKS M broker -
    Format of the key store: JKS, PKCS12 or PEM.
ssl.principal.mapping.rules STRING DEFAULT L fixed -
    Rules that shorten a certificate's subject to a user name.
ssl.protocol STRING TLSv1.3 M broker -
    Version of TLS that is used by choice.
ssl.provider STRING null M broker -
    Library that brings TLS.
ssl.secure.random.implementation STRING null L broker -
    Source of random numbers for TLS.
ssl.trustmanager.algorithm STRING PKIX M broker -
    Algorithm that judges certificates.
ssl.truststore.certificates PASSWORD null M broker -
    Trusted certificates as PEM text.
ssl.truststore.location STRING null M broker -
    File with the trusted certificates.
ssl.truststore.password PASSWORD null M broker -
    Password of the trust store.
ssl.truststore.type STRING JKS M broker -
    Format of the trust store: JKS, PKCS12 or PEM.
"""  # noqa: E501
