"""A certificate authority for tests, and what it signs."""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

DAY = timedelta(days=1)
PASSWORD = b"secret"


class Authority:
    """Signs certificates; its own stands in `pem`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.pem = folder / f"{name}.pem"
        self._folder = folder
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        is_authority = x509.BasicConstraints(ca=True, path_length=None)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = self._begun(self._name, self._key.public_key(), datetime.now(timezone.utc))
        made = made.add_extension(is_authority, critical=True).add_extension(usage, critical=True)
        self.pem.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(self, address: str, *, is_over: bool = False, has_password: bool = False) -> tuple[Path, Path]:
        """The files of a certificate for an IP address and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        start = datetime.now(timezone.utc) - (10 * DAY if is_over else timedelta())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = self._begun(_named(address), key.public_key(), start)
        made = made.add_extension(names, critical=False).add_extension(issuer, critical=False)
        cert, secret = self._folder / f"{address}.pem", self._folder / f"{address}.key"
        cert.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        kept = (
            serialization.BestAvailableEncryption(PASSWORD) if has_password else serialization.NoEncryption()
        )
        form = serialization.PrivateFormat.PKCS8
        secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, kept))
        secret.chmod(0o600)
        return cert, secret

    def _begun(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, start: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start - DAY)
            .not_valid_after(start + 5 * DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
