"""TLS, SASL, delegation tokens and authorization."""

TABLE = """
authorizer.class.name STRING "" L fixed + nonnull
    Plugin class that authorizes requests; empty means everything is allowed.
connections.max.reauth.ms LONG 0 M fixed +
    Time after which SASL clients must authenticate again, in ms; 0 means never.
delegation.token.expiry.check.interval.ms LONG 3600000 L fixed + >=1
    How often to check for expired tokens, in ms.
delegation.token.expiry.time.ms LONG 86400000 M fixed + >=1
    How long a token is valid before it must be renewed, in ms.
delegation.token.max.lifetime.ms LONG 604800000 M fixed + >=1
    Maximum lifetime of a token, in ms; after this it cannot be renewed.
delegation.token.secret.key PASSWORD null M fixed +
    Secret that signs tokens; the same on every broker.
principal.builder.class CLASS org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder M broker +
    Plugin class that determines the user of a connection.
sasl.client.callback.handler.class CLASS null M fixed -
    Callback handler class for SASL clients.
sasl.enabled.mechanisms LIST GSSAPI M broker + list
    SASL mechanisms that are enabled.
sasl.jaas.config PASSWORD null M broker +
    SASL credentials in JAAS format; on a broker, for one listener and mechanism.
sasl.kerberos.kinit.cmd STRING /usr/bin/kinit M broker -
    Path of the kinit command.
sasl.kerberos.min.time.before.relogin LONG 60000 M broker -
    Minimum time between two Kerberos logins, in ms.
sasl.kerberos.principal.to.local.rules LIST DEFAULT M broker - list
    Rules that map Kerberos principals to user names.
sasl.kerberos.service.name STRING null M broker -
    Kerberos service name.
sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 M broker -
    Random jitter of the renewal time of a ticket.
sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 M broker -
    Fraction of a ticket's lifetime after which it is renewed.
sasl.login.callback.handler.class CLASS null M fixed +
    Callback handler class for SASL logins.
sasl.login.class CLASS null M fixed -
    Class that performs SASL logins.
sasl.login.connect.timeout.ms INT null L fixed +
    Timeout of connections to the token provider, in ms.
sasl.login.read.timeout.ms INT null L fixed +
    Timeout of responses of the token provider, in ms.
sasl.login.refresh.buffer.seconds SHORT 300 M broker +
    Minimum remaining lifetime of a token when it is refreshed, in seconds.
sasl.login.refresh.min.period.seconds SHORT 60 M broker +
    Minimum time between two refreshes of a token, in seconds.
sasl.login.refresh.window.factor DOUBLE 0.8 M broker +
    Fraction of a token's lifetime after which it is refreshed.
sasl.login.refresh.window.jitter DOUBLE 0.05 M broker +
    Random jitter of the refresh time of a token.
sasl.login.retry.backoff.max.ms LONG 10000 L fixed +
    Maximum pause between attempts to reach the token provider, in ms.
sasl.login.retry.backoff.ms LONG 100 L fixed +
    Initial pause between attempts to reach the token provider, in ms.
sasl.mechanism.controller.protocol STRING GSSAPI H fixed +
    SASL mechanism for connections to controllers.
sasl.mechanism.inter.broker.protocol STRING GSSAPI M broker +
    SASL mechanism for connections between brokers.
sasl.oauthbearer.assertion.algorithm STRING RS256 M fixed + anycase(ES256|RS256)
    Algorithm that signs assertions.
sasl.oauthbearer.assertion.claim.aud STRING null M fixed +
    Audience claim of assertions.
sasl.oauthbearer.assertion.claim.exp.seconds INT 300 L fixed + 0..86400
    How long an assertion is valid, in seconds.
sasl.oauthbearer.assertion.claim.iss STRING null M fixed +
    Issuer claim of assertions.
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN false M fixed +
    Whether assertions have a jti claim.
sasl.oauthbearer.assertion.claim.nbf.seconds INT 60 L fixed + 0..3600
    How far back the validity of an assertion starts, in seconds.
sasl.oauthbearer.assertion.claim.sub STRING null M fixed +
    Subject claim of assertions.
sasl.oauthbearer.assertion.file STRING null M fixed +
    File with a prepared assertion.
sasl.oauthbearer.assertion.private.key.file STRING null M fixed +
    File with the private key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD null M fixed +
    Passphrase of the key that signs assertions.
sasl.oauthbearer.assertion.template.file STRING null M fixed +
    File with a template for assertions.
sasl.oauthbearer.client.credentials.client.id STRING null M fixed +
    Client id for the token provider.
sasl.oauthbearer.client.credentials.client.secret PASSWORD null M fixed +
    Client secret for the token provider.
sasl.oauthbearer.clock.skew.seconds INT 30 L fixed +
    Allowed clock difference between provider and broker, in seconds.
sasl.oauthbearer.expected.audience LIST "" H fixed + list
    Accepted audiences of tokens.
sasl.oauthbearer.expected.issuer STRING null H fixed +
    Expected issuer of tokens.
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG 3600000 L fixed +
    How often the provider's keys are refreshed, in ms.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG 10000 L fixed +
    Maximum pause between attempts to fetch the provider's keys, in ms.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG 100 L fixed +
    Initial pause between attempts to fetch the provider's keys, in ms.
sasl.oauthbearer.jwks.endpoint.url STRING null M fixed +
    URL of the provider's keys (JWKS).
sasl.oauthbearer.jwt.retriever.class CLASS org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever M fixed +
    Class that retrieves tokens.
sasl.oauthbearer.jwt.validator.class CLASS org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator M fixed +
    Class that validates tokens.
sasl.oauthbearer.scope STRING null M fixed +
    Scope to request from the token provider.
sasl.oauthbearer.scope.claim.name STRING scope L fixed +
    Claim that holds the scope of a token.
sasl.oauthbearer.sub.claim.name STRING sub L fixed +
    Claim that holds the user of a token.
sasl.oauthbearer.token.endpoint.url STRING null M fixed +
    URL of the token endpoint.
sasl.server.callback.handler.class CLASS null M fixed +
    Callback handler class for SASL servers.
sasl.server.max.receive.size INT 524288 M fixed +
    Maximum size of a message during SASL authentication, in bytes.
security.inter.broker.protocol STRING PLAINTEXT M fixed + in(PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)
    Security protocol between brokers, if inter.broker.listener.name is not set.
security.providers STRING null L fixed -
    Classes that provide security algorithms.
ssl.allow.dn.changes BOOLEAN false L fixed +
    Whether a reloaded certificate may have a different subject.
ssl.allow.san.changes BOOLEAN false L fixed +
    Whether a reloaded certificate may have different subject alternative names.
ssl.cipher.suites LIST "" M broker + list
    Enabled cipher suites; empty means the library's default.
ssl.client.auth STRING none M broker + in(required|requested|none)
    Client authentication with certificates: required, requested or none.
ssl.enabled.protocols LIST TLSv1.2,TLSv1.3 M broker + list
    Enabled versions of TLS.
ssl.endpoint.identification.algorithm STRING https L broker +
    How host names are verified against certificates; empty disables the check.
ssl.engine.factory.class CLASS null L broker -
    Plugin class that creates TLS engines.
ssl.key.password PASSWORD null M broker +
    Password of the private key.
ssl.keymanager.algorithm STRING SunX509 M broker -
    Algorithm of the key manager; no meaning here: OpenSSL is used.
ssl.keystore.certificate.chain PASSWORD null M broker +
    Certificate chain as PEM text.
ssl.keystore.key PASSWORD null M broker +
    Private key as PEM text.
ssl.keystore.location STRING null M broker +
    Key store file.
ssl.keystore.password PASSWORD null M broker +
    Password of the key store.
ssl.keystore.type STRING JKS M broker +
    Format of the key store: JKS, PKCS12 or PEM.
ssl.principal.mapping.rules STRING DEFAULT L fixed +
    Rules that map certificate subjects to user names.
ssl.protocol STRING TLSv1.3 M broker -
    Preferred version of TLS; no meaning here: ssl.enabled.protocols says which are used.
ssl.provider STRING null M broker -
    TLS provider; no meaning here: OpenSSL is used.
ssl.secure.random.implementation STRING null L broker -
    Random number generator for TLS; no meaning here: OpenSSL has its own.
ssl.trustmanager.algorithm STRING PKIX M broker -
    Algorithm of the trust manager; no meaning here: OpenSSL is used.
ssl.truststore.certificates PASSWORD null M broker +
    Trusted certificates as PEM text.
ssl.truststore.location STRING null M broker +
    Trust store file.
ssl.truststore.password PASSWORD null M broker +
    Password of the trust store.
ssl.truststore.type STRING JKS M broker +
    Format of the trust store: JKS, PKCS12 or PEM.
"""  # noqa: E501
