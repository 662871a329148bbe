"""TLS, SASL, delegation tokens and authorization."""

TABLE = """
authorizer.class.name STRING "" L fixed - nonnull
    .
connections.max.reauth.ms LONG 0 M fixed -
    .
delegation.token.expiry.check.interval.ms LONG 3600000 L fixed - >=1
    .
delegation.token.expiry.time.ms LONG 86400000 M fixed - >=1
    .
delegation.token.max.lifetime.ms LONG 604800000 M fixed - >=1
    .
delegation.token.secret.key PASSWORD null M fixed -
    .
principal.builder.class CLASS org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder M broker -
    .
sasl.client.callback.handler.class CLASS null M fixed -
    .
sasl.enabled.mechanisms LIST GSSAPI M broker - list
    .
sasl.jaas.config PASSWORD null M broker -
    .
sasl.kerberos.kinit.cmd STRING /usr/bin/kinit M broker -
    .
sasl.kerberos.min.time.before.relogin LONG 60000 M broker -
    .
sasl.kerberos.principal.to.local.rules LIST DEFAULT M broker - list
    .
sasl.kerberos.service.name STRING null M broker -
    .
sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 M broker -
    .
sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 M broker -
    .
sasl.login.callback.handler.class CLASS null M fixed -
    .
sasl.login.class CLASS null M fixed -
    .
sasl.login.connect.timeout.ms INT null L fixed -
    .
sasl.login.read.timeout.ms INT null L fixed -
    .
sasl.login.refresh.buffer.seconds SHORT 300 M broker -
    .
sasl.login.refresh.min.period.seconds SHORT 60 M broker -
    .
sasl.login.refresh.window.factor DOUBLE 0.8 M broker -
    .
sasl.login.refresh.window.jitter DOUBLE 0.05 M broker -
    .
sasl.login.retry.backoff.max.ms LONG 10000 L fixed -
    .
sasl.login.retry.backoff.ms LONG 100 L fixed -
    .
sasl.mechanism.controller.protocol STRING GSSAPI H fixed -
    .
sasl.mechanism.inter.broker.protocol STRING GSSAPI M broker -
    .
sasl.oauthbearer.assertion.algorithm STRING RS256 M fixed - anycase(ES256|RS256)
    .
sasl.oauthbearer.assertion.claim.aud STRING null M fixed -
    .
sasl.oauthbearer.assertion.claim.exp.seconds INT 300 L fixed - 0..86400
    .
sasl.oauthbearer.assertion.claim.iss STRING null M fixed -
    .
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN false M fixed -
    .
sasl.oauthbearer.assertion.claim.nbf.seconds INT 60 L fixed - 0..3600
    .
sasl.oauthbearer.assertion.claim.sub STRING null M fixed -
    .
sasl.oauthbearer.assertion.file STRING null M fixed -
    .
sasl.oauthbearer.assertion.private.key.file STRING null M fixed -
    .
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD null M fixed -
    .
sasl.oauthbearer.assertion.template.file STRING null M fixed -
    .
sasl.oauthbearer.client.credentials.client.id STRING null M fixed -
    .
sasl.oauthbearer.client.credentials.client.secret PASSWORD null M fixed -
    .
sasl.oauthbearer.clock.skew.seconds INT 30 L fixed -
    .
sasl.oauthbearer.expected.audience LIST "" H fixed - list
    .
sasl.oauthbearer.expected.issuer STRING null H fixed -
    .
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG 3600000 L fixed -
    .
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG 10000 L fixed -
    .
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG 100 L fixed -
    .
sasl.oauthbearer.jwks.endpoint.url STRING null M fixed -
    .
sasl.oauthbearer.jwt.retriever.class CLASS org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever M fixed -
    .
sasl.oauthbearer.jwt.validator.class CLASS org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator M fixed -
    .
sasl.oauthbearer.scope STRING null M fixed -
    .
sasl.oauthbearer.scope.claim.name STRING scope L fixed -
    .
sasl.oauthbearer.sub.claim.name STRING sub L fixed -
    .
sasl.oauthbearer.token.endpoint.url STRING null M fixed -
    .
sasl.server.callback.handler.class CLASS null M fixed -
    .
sasl.server.max.receive.size INT 524288 M fixed -
    .
security.inter.broker.protocol STRING PLAINTEXT M fixed + in(PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)
    .
security.providers STRING null L fixed -
    .
ssl.allow.dn.changes BOOLEAN false L fixed -
    .
ssl.allow.san.changes BOOLEAN false L fixed -
    .
ssl.cipher.suites LIST "" M broker - list
    .
ssl.client.auth STRING none M broker - in(required|requested|none)
    .
ssl.enabled.protocols LIST TLSv1.2,TLSv1.3 M broker - list
    .
ssl.endpoint.identification.algorithm STRING https L broker -
    .
ssl.engine.factory.class CLASS null L broker -
    .
ssl.key.password PASSWORD null M broker -
    .
ssl.keymanager.algorithm STRING SunX509 M broker -
    .
ssl.keystore.certificate.chain PASSWORD null M broker -
    .
ssl.keystore.key PASSWORD null M broker -
    .
ssl.keystore.location STRING null M broker -
    .
ssl.keystore.password PASSWORD null M broker -
    .
ssl.keystore.type STRING JKS M broker -
    .
ssl.principal.mapping.rules STRING DEFAULT L fixed -
    .
ssl.protocol STRING TLSv1.3 M broker -
    .
ssl.provider STRING null M broker -
    .
ssl.secure.random.implementation STRING null L broker -
    .
ssl.trustmanager.algorithm STRING PKIX M broker -
    .
ssl.truststore.certificates PASSWORD null M broker -
    .
ssl.truststore.location STRING null M broker -
    .
ssl.truststore.password PASSWORD null M broker -
    .
ssl.truststore.type STRING JKS M broker -
    .
"""  # noqa: E501
