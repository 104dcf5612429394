"""Keys of a domain: its own certificate authority, and an identity for each station of its network.

    keys/authority/     certificate.pem, key.pem        stays with whoever makes identities
    keys/site-a/        certificate.pem, key.pem, authority.pem      goes to the host of that station

The authority names the domain, and a station takes no identity of another one. What is signed by it may
connect and be connected to; nothing else is. Keys are ECDSA over P-256, readable by their user only.
"""

from __future__ import annotations

import ipaddress
import os
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import MissingExtra, NotPossible

if TYPE_CHECKING:
    from collections.abc import Iterable

AUTHORITY: Final = "authority"
CERTIFICATE, KEY, TRUSTED = "certificate.pem", "key.pem", "authority.pem"
AUTHORITY_DAYS: Final = 3_650
DEFAULT_DAYS: Final = 365
"""Days for which an identity is valid, if nothing else is said."""
MAX_DAYS: Final = 3_650
THIS_HOST: Final = ("localhost", "127.0.0.1", "::1")
_EARLIER: Final = timedelta(minutes=5)
"""Clocks of hosts may differ by so much."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class CertificateIdentity(msgspec.Struct, frozen=True):
    """What a certificate says."""

    name: str
    domain: str
    hosts: tuple[str, ...]
    until: datetime
    folder: str

    @property
    def is_expired(self) -> bool:
        return datetime.now(UTC) > self.until


def _x509() -> Any:
    try:
        from cryptography import x509  # noqa: PLC0415 - who has no keys does without it
    except ImportError as error:
        raise MissingExtra("keys of a domain", "cryptography", "network") from error
    return x509


def make_authority(folder: str | os.PathLike[str], domain: str) -> CertificateIdentity:
    """Make the authority of a domain; NotPossible when there is one."""
    x509 = _x509()
    if not domain:
        raise NotPossible("an authority", "names its domain, such as 'airspace'")
    place = Path(folder) / AUTHORITY
    key = _new_key()
    name = _subject(AUTHORITY, domain)
    builder = (
        _builder(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    _write(place, {KEY: _text_of(key), CERTIFICATE: _signed(builder, key)}, anew=False)
    return read_identity(place)


def make_identity(
    folder: str | os.PathLike[str],
    name: str,
    hosts: Iterable[str] = (),
    *,
    days: int = DEFAULT_DAYS,
    anew: bool = False,
) -> CertificateIdentity:
    """Make an identity, signed by the authority in the folder.

    Args:
        folder: where the authority is.
        name: of the station or site.
        hosts: names and addresses at which others connect to it; those of its own host are added.
        days: for which it is valid.
        anew: renew one that is there, with a new key.
    """
    x509 = _x509()
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above

    base = Path(folder)
    if not _NAME.fullmatch(name) or name == AUTHORITY:
        raise NotPossible(
            f"identity {name!r:.80}", "a name has letters, digits, '.', '_' and '-', such as 'site-a'"
        )
    if type(days) is not int or not 1 <= days <= MAX_DAYS:
        raise NotPossible(f"days={days!r:.20}", f"a whole number from 1 to {MAX_DAYS:,}")
    authority = _certificate(base / AUTHORITY / CERTIFICATE, "make one: helio keys init")
    signing = serialization.load_pem_private_key(_read(base / AUTHORITY / KEY, "it signs identities"), None)
    if anew:
        hosts = (*read_identity(base / name).hosts, *hosts)
    key = _new_key()
    domain = _domain_of(authority)
    own = dict.fromkeys((*THIS_HOST, *hosts))
    builder = (
        _builder(_subject(name, domain), authority.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage(
                [x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in own]), critical=False)
    )
    files = {
        KEY: _text_of(key),
        CERTIFICATE: _signed(builder, signing),
        TRUSTED: (base / AUTHORITY / CERTIFICATE).read_bytes(),
    }
    _write(base / name, files, anew=anew)
    return read_identity(base / name)


def read_identity(folder: str | os.PathLike[str]) -> CertificateIdentity:
    """What the certificate in a folder says; NotPossible when there is none that can be read."""
    x509 = _x509()
    place = Path(folder)
    certificate = _certificate(place / CERTIFICATE, "helio keys add makes one")
    hosts: tuple[str, ...] = ()
    with suppress(x509.ExtensionNotFound):
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = tuple(str(name.value) for name in names)
    common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return CertificateIdentity(
        str(common[0].value) if common else "",
        _domain_of(certificate),
        hosts,
        certificate.not_valid_after_utc,
        str(place),
    )


def check_identity(folder: str | os.PathLike[str], domain: str) -> CertificateIdentity:
    """An identity as a station of a domain uses it; NotPossible says why it cannot."""
    place = Path(folder)
    identity = read_identity(place)
    for needed in (KEY, TRUSTED):
        _read(place / needed, "an identity is a folder with certificate.pem, key.pem and authority.pem")
    if (place / KEY).stat().st_mode & 0o077:
        raise NotPossible(str(place / KEY), "can be read by other users: chmod 600")
    if identity.domain != domain:
        raise NotPossible(str(place), f"is an identity of domain {identity.domain!r}, not of {domain!r}")
    if identity.is_expired:
        raise NotPossible(
            str(place),
            f"has expired on {identity.until:%Y-%m-%d %H:%M} UTC: helio keys renew {identity.name}",
        )
    authority = _certificate(place / TRUSTED, "it comes with the identity")
    try:
        _certificate(place / CERTIFICATE, "").verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001 - several kinds say the same
        raise NotPossible(str(place / CERTIFICATE), "is not signed by the authority.pem beside it") from None
    if not _fits(place / KEY, place / CERTIFICATE):
        raise NotPossible(str(place / KEY), "is not the key of the certificate.pem beside it")
    return identity


def _fits(key: Path, certificate: Path) -> bool:
    """Whether a key is that of a certificate."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above

    try:
        private = serialization.load_pem_private_key(_read(key, ""), None)
    except (ValueError, TypeError):
        raise NotPossible(str(key), "is no key, or one with a password") from None
    return bool(private.public_key() == _certificate(certificate, "").public_key())


def identities(folder: str | os.PathLike[str]) -> list[CertificateIdentity]:
    """All that are in a folder, the authority first."""
    places = sorted(path.parent for path in Path(folder).glob(f"*/{CERTIFICATE}"))
    return sorted(map(read_identity, places), key=lambda one: (one.name != AUTHORITY, one.name))


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above

    return ec.generate_private_key(ec.SECP256R1())


def _text_of(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above

    text: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return text


def _subject(name: str, domain: str) -> Any:
    x509 = _x509()
    return x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, domain),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, name),
        ]
    )


def _domain_of(certificate: Any) -> str:
    found = certificate.subject.get_attributes_for_oid(_x509().NameOID.ORGANIZATION_NAME)
    return str(found[0].value) if found else ""


def _builder(subject: Any, issuer: Any, key: Any, days: int) -> Any:
    x509 = _x509()
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs: bool) -> Any:
    return _x509().KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: Any, key: Any) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - as above

    text: bytes = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return text


def _host(host: str) -> Any:
    x509 = _x509()
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise NotPossible(f"host {host!r:.80}", "is no name or address of a host") from None


def _read(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotPossible(str(path), f"{error.strerror}; {remedy}") from None


def _certificate(path: Path, remedy: str) -> Any:
    try:
        return _x509().load_pem_x509_certificate(_read(path, remedy))
    except ValueError:
        raise NotPossible(str(path), "is no certificate") from None


def _write(place: Path, files: dict[str, bytes], *, anew: bool) -> None:
    """Each file whole or not at all; keys for this user only."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not anew and any((place / name).exists() for name in files):
        raise NotPossible(str(place), "is there already: helio keys renew makes it anew")
    for name, data in files.items():
        new = place / f".{name}.new"
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        new.replace(place / name)
