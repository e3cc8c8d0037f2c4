"""Ed25519 keys and signatures, made and verified by the openssl command, as an operator does."""

import subprocess
from pathlib import Path


def signing_key(path: Path) -> Path:
    """Make a private key."""
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
    return path


def is_signed(key: Path, data: Path, signature: Path) -> bool:
    """Verify a signature with the public key, by the commands of tierctl-restore-log(1)."""
    public = key.with_suffix(".pub")
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    words = ("pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", data, "-sigfile", signature)
    return subprocess.run(["openssl", *words], capture_output=True, check=False).returncode == 0
