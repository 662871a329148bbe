"""Names in certificates, the users they stand for, and the stores that they are kept in."""

from __future__ import annotations

import datetime
from base64 import b64decode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from headwater.security.certificates import names_of
from headwater.security.mapping import PrincipalMapping
from headwater.security.stores import first_certificate, normalized_pem, read_store

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(subject: x509.Name, *hosts: str) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    if hosts:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(KEY, hashes.SHA256())


def der(found: x509.Certificate) -> bytes:
    return found.public_bytes(serialization.Encoding.DER)


def name(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


@pytest.mark.parametrize(
    ("subject", "written"),
    [  # what Java's X500Principal.getName() gives for them
        (
            name(
                (NameOID.COUNTRY_NAME, "DE"),
                (NameOID.ORGANIZATION_NAME, 'A, B + C <x> "q"; # = \\ y'),
                (NameOID.COMMON_NAME, " lead é trail "),
            ),
            r"CN=\ lead é trail\ ,O=A\, B \+ C \<x\> \"q\"\; \# \= \\ y,C=DE",
        ),
        (
            name((NameOID.EMAIL_ADDRESS, "a@b.c"), (NameOID.SURNAME, "Sn"), (NameOID.USER_ID, "u")),
            "UID=u,2.5.4.4=#0c02536e,1.2.840.113549.1.9.1=#16056140622e63",
        ),
    ],
)
def test_a_subject_is_written_as_java_writes_it(subject: x509.Name, written: str) -> None:
    assert names_of(der(certificate(subject))).subject == written


def test_alternative_names_can_be_compared() -> None:
    subject = name((NameOID.COMMON_NAME, "x"))
    one, both = (names_of(der(certificate(subject, *hosts))) for hosts in (["a"], ["b", "a"]))
    assert one.alternatives < both.alternatives
    assert names_of(der(certificate(subject))).alternatives == frozenset()


def test_a_damaged_certificate_is_a_value_error() -> None:
    whole = der(certificate(name((NameOID.COMMON_NAME, "x")), "a"))
    for size in range(0, len(whole), 7):
        with pytest.raises(ValueError, match=r".*"):
            names_of(whole[:size])


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", "CN=Alice,OU=Dev,O=Corp"),
        ("", "CN=Alice,OU=Dev,O=Corp"),
        ("RULE:^CN=(.*?),OU=Dev.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),OU=Dev.*$/$1@dev/L", "alice@dev"),
        ("RULE:^CN=(.*?),.*$/$1/U", "ALICE"),
        ("RULE:^CN=(.*?),OU=Ops.*$/ops/, RULE:^CN=(.*?),OU=(.*?),.*$/$2.$1/L,DEFAULT", "dev.alice"),
        ("RULE:^CN=(?<who>.*?),.*$/${who}/", "Alice"),
        (r"RULE:^CN=(.*?),.*$/\$1\/x/", "$1/x"),
        ("RULE:^OU=.*$/x/", None),
    ],
)
def test_rules_turn_a_subject_into_a_user(rules: str, user: str | None) -> None:
    assert PrincipalMapping(rules).name_of("CN=Alice,OU=Dev,O=Corp") == user


@pytest.mark.parametrize("rules", ["RULE:(/x/", "RULE:a/$1/", "nonsense", "RULE:a", "RULE:a/b/X"])
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        PrincipalMapping(rules)


def pem_key() -> str:
    return KEY.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def test_pem_from_one_line_of_a_properties_file_is_pem_again() -> None:
    pem = certificate(name((NameOID.COMMON_NAME, "x"))).public_bytes(serialization.Encoding.PEM)
    for squeezed in (pem.replace(b"\n", b""), pem.replace(b"\n", b" ")):
        assert normalized_pem(squeezed.decode()) == pem.decode()
    with pytest.raises(ValueError, match="PEM"):
        normalized_pem("s3cret")


def test_a_pkcs12_has_the_key_its_chain_and_what_is_trusted() -> None:
    own, other = (
        certificate(name((NameOID.COMMON_NAME, "x"))),
        certificate(name((NameOID.COMMON_NAME, "ca"))),
    )
    lock = serialization.BestAvailableEncryption(b"changeit")
    data = pkcs12.serialize_key_and_certificates(b"x", KEY, own, [other], lock)
    store = read_store(data, "PKCS12", "changeit", None)
    assert store.key == pem_key()
    assert store.chain is not None
    assert first_certificate(store.chain) == der(own)
    assert store.trusted is not None
    assert first_certificate(store.trusted) == der(other)
    with pytest.raises(ValueError, match="password is wrong"):
        read_store(data, "PKCS12", "guess", None)


# keytool -genkeypair -storetype JKS -storepass changeit -keypass keypass -dname CN=jks
JKS = b64decode(
    "/u3+7QAAAAIAAAABAAAAAQABYQAAAaHwbJo9AAAAfzB9MA4GCisGAQQBKgIRAQEFAARryUoMYSNdc0cETEjXwKum"
    "08Tl8/F9SmpBmtAa04KDWbenRoSNTTeK2FmijtXzIUkpK+KAvfL+YXhU5XBnHbq8BvPCx9EXCm6zWO6PpdKRBIJS"
    "m+2hzZyzMHUEWUb9/hRK6FxY0pMYvXSy2RUAAAABAAVYLjUwOQAAATkwggE1MIHcoAMCAQICCQC/sJtgL4YoEzAK"
    "BggqhkjOPQQDAjAOMQwwCgYDVQQDEwNqa3MwIBcNMjYxMTE4MjA1MDExWhgPMjEyNjEwMjUyMDUwMTFaMA4xDDAK"
    "BgNVBAMTA2prczBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABKuTV8pR825rgrx721VKE421fu7qkPYvVsnAcCgv"
    "vyO6dCu+X+1JwHB8Mbsy2DCFwhbPJUg/1esu6gtWXYn9EgWjITAfMB0GA1UdDgQWBBQP5EiOY7NmAhgqKLkCh8qo"
    "3aWr+DAKBggqhkjOPQQDAgNIADBFAiEAwfLShcUtLn0wRDZ9wnYbG60ppAG7E1ztFLCkjJwjPtwCIAZT/5/TE+ix"
    "WuqFR7zpVAPbgb8j57vuT2fcEkFU+aepaFuvyV2DI/B8Fx71Reb67PdHCfw="
)


def test_a_jks_of_keytool_has_its_key_and_its_chain() -> None:
    store = read_store(JKS, "JKS", "changeit", "keypass")
    assert store.key is not None
    serialization.load_pem_private_key(store.key.encode(), None)
    assert store.chain is not None
    assert names_of(first_certificate(store.chain) or b"").subject == "CN=jks"
    for passwords in (("guess", "keypass"), ("changeit", "guess"), ("changeit", None)):
        with pytest.raises(ValueError, match="password"):
            read_store(JKS, "JKS", *passwords)


@pytest.mark.parametrize(
    "data", [b"", b"\xfe\xed\xfe\xed", b"\x30\x03abc", b"\xce\xce\xce\xce", b"x"]
)
def test_a_damaged_store_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_store(data, "JKS", "changeit", None)


def test_a_jks_whose_key_is_empty_is_a_value_error() -> None:
    entry = b"\0\0\0\1\0\1a" + bytes(8) + b"\0\0\0\2\x30\0\0\0\0\0"
    whole = b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1" + entry
    with pytest.raises(ValueError, match="its key is empty"):
        read_store(whole + bytes(20), "JKS", None, None)


def test_a_certificate_without_content_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="empty"):
        names_of(b"\x30\0")


def test_a_truststore_with_a_key_trusts_its_authorities_or_else_its_certificate() -> None:
    own, authority = (certificate(name((NameOID.COMMON_NAME, each))) for each in ("x", "ca"))
    lock = serialization.BestAvailableEncryption(b"changeit")

    def anchors(*others: x509.Certificate) -> str:
        data = pkcs12.serialize_key_and_certificates(b"x", KEY, own, others, lock)
        return read_store(data, "PKCS12", "changeit", None).anchors()

    assert first_certificate(anchors()) == der(own)
    assert first_certificate(anchors(authority)) == der(authority)
    chain = read_store(JKS, "JKS", "changeit", "keypass").anchors()
    assert names_of(first_certificate(chain) or b"").subject == "CN=jks"
    with pytest.raises(ValueError, match="holds no certificates"):
        read_store(pem_key().encode(), "PEM", None, None).anchors()


def test_blocks_of_pem_end_before_the_next_one_and_are_bounded() -> None:
    good = certificate(name((NameOID.COMMON_NAME, "x"))).public_bytes(serialization.Encoding.PEM)
    begin = "-----BEGIN CERTIFICATE-----"
    # Without a bound on the search, this takes minutes.
    assert normalized_pem(begin * 30_000 + good.decode()) == good.decode()
    with pytest.raises(ValueError, match="at most 1048576"):
        normalized_pem(good.decode() + " " * 1024 * 1024)


def test_a_store_does_not_show_its_key() -> None:
    store = read_store(pem_key().encode(), "PEM", None, None)
    assert store.key is not None
    assert "PRIVATE KEY" not in repr(store)


def test_pem_given_as_jks_says_so() -> None:
    with pytest.raises(ValueError, match="set the type to PEM"):
        read_store(pem_key().encode(), "JKS", None, None)
