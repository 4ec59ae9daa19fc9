"""A certificate authority of the tests' own, with an intermediate one, made by openssl."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import missing

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Pair:
    """A certificate, with the chain to its authority behind it, and its key."""

    certificate: Path
    key: Path


class Authority:
    """A root, and below it the intermediate one that issues, as Let's Encrypt has it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.root = folder / "root.pem"
        self._root_key = folder / "root.key"
        _openssl("req", "-x509", *EC, "-days", "9", "-subj", "/CN=test root",
                 "-keyout", self._root_key, "-out", self.root)  # fmt: skip
        self._middle = self._issue("middle", "basicConstraints=critical,CA:TRUE", serial=2,
                                   by=Pair(self.root, self._root_key))  # fmt: skip

    def issue(self, *, serial: int, days: int = 9) -> Pair:
        """A certificate for localhost under this serial; with days below 0 it has expired."""
        names = "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth"
        leaf = self._issue(f"leaf{serial}", names, serial=serial, by=self._middle, days=days)
        chain = leaf.certificate.read_bytes() + self._middle.certificate.read_bytes()
        leaf.certificate.write_bytes(chain)
        return leaf

    def _issue(self, name: str, extensions: str, *, serial: int, by: Pair, days: int = 9) -> Pair:
        asked, made = (
            self._folder / f"{name}.csr",
            Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key"),
        )
        with_these = self._folder / f"{name}.ext"
        with_these.write_text(extensions)
        _openssl("req", "-new", *EC, "-subj", f"/CN=test {name}", "-keyout", made.key,
                 "-out", asked)  # fmt: skip
        _openssl("x509", "-req", "-in", asked, "-CA", by.certificate, "-CAkey", by.key,
                 "-set_serial", serial, "-days", days, "-extfile", with_these,
                 "-out", made.certificate)  # fmt: skip
        return made


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def _openssl(*arguments: object) -> None:
    try:
        subprocess.run(
            ["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30
        )
    except FileNotFoundError:
        missing("openssl is not installed")
