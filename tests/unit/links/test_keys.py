"""A domain's authority and the identities that it signs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from heliograph.cli import run
from heliograph.errors import NotPossible
from heliograph.links import keys

if TYPE_CHECKING:
    from pathlib import Path


class Then(datetime):
    """A clock that stands in a year that is over."""

    @classmethod
    def now(cls, tz: object = None) -> Then:
        return cls(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keys.make_authority(tmp_path / "keys", "air")
    return tmp_path / "keys"


def test_an_identity_names_its_domain_and_its_hosts(folder: Path) -> None:
    made = keys.make_identity(folder, "site-a", ["10.0.0.1", "radar.example"])
    assert (made.name, made.domain) == ("site-a", "air")
    assert set(made.hosts) == {"localhost", "127.0.0.1", "::1", "10.0.0.1", "radar.example"}
    assert keys.check_identity(folder / "site-a", "air") == made


def test_keys_can_be_read_by_their_user_only(folder: Path) -> None:
    keys.make_identity(folder, "site-a")
    for name in ("authority", "site-a"):
        assert (folder / name / "key.pem").stat().st_mode & 0o777 == 0o600
    (folder / "site-a" / "key.pem").chmod(0o644)
    with pytest.raises(NotPossible, match="chmod 600"):
        keys.check_identity(folder / "site-a", "air")


def test_what_is_there_is_not_written_over_but_renewed(folder: Path) -> None:
    first = keys.make_identity(folder, "site-a", ["10.0.0.1"], days=1)
    with pytest.raises(NotPossible, match="renew"):
        keys.make_identity(folder, "site-a")
    with pytest.raises(NotPossible, match="is there already"):
        keys.make_authority(folder, "air")
    key = (folder / "site-a" / "key.pem").read_bytes()
    renewed = keys.make_identity(folder, "site-a", days=30, anew=True)
    assert renewed.hosts == first.hosts
    assert renewed.until > first.until
    assert (folder / "site-a" / "key.pem").read_bytes() != key
    keys.check_identity(folder / "site-a", "air")


def test_an_identity_that_has_expired_is_refused_with_the_remedy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as then:
        then.setattr(keys, "datetime", Then)
        keys.make_identity(folder, "site-a")
    with pytest.raises(NotPossible, match=r"expired on 2020-12-31.*helio keys renew site-a"):
        keys.check_identity(folder / "site-a", "air")


def test_what_is_not_whole_or_of_another_domain_or_authority_is_refused(folder: Path, tmp_path: Path) -> None:
    keys.make_identity(folder, "site-a")
    with pytest.raises(NotPossible, match="of domain 'air', not of 'sea'"):
        keys.check_identity(folder / "site-a", "sea")
    with pytest.raises(NotPossible, match="helio keys add"):
        keys.check_identity(folder / "nobody", "air")
    keys.make_authority(tmp_path / "others", "air")
    (folder / "site-a" / "authority.pem").write_bytes(
        (tmp_path / "others" / "authority" / "certificate.pem").read_bytes()
    )
    with pytest.raises(NotPossible, match="not signed by"):
        keys.check_identity(folder / "site-a", "air")
    (folder / "site-a" / "certificate.pem").write_text("nonsense")
    with pytest.raises(NotPossible, match="no certificate"):
        keys.check_identity(folder / "site-a", "air")
    (folder / "site-a" / "key.pem").unlink()


@pytest.mark.parametrize("name", ["", "..", "a/b", "authority", "-x", "x" * 65])
def test_a_name_that_is_no_name_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(NotPossible, match="identity"):
        keys.make_identity(folder, name)


@pytest.mark.parametrize("days", [0, -1, 3_651, 1.5])
def test_a_time_that_cannot_be_is_refused(folder: Path, days: int) -> None:
    with pytest.raises(NotPossible, match="days="):
        keys.make_identity(folder, "site-a", days=days)


def test_the_shell_makes_renews_and_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "keys")
    assert run(["keys", "add", place, "site-a"]) == 2
    assert "helio keys init" in capsys.readouterr().err
    assert run(["keys", "init", place, "--domain", "air"]) == 0
    assert run(["keys", "add", place, "site-a", "--host", "10.0.0.1"]) == 0
    assert run(["keys", "add", place, "site-a"]) == 2
    assert run(["keys", "renew", place, "site-a", "--days", "30"]) == 0
    assert run(["keys", "show", place]) == 0
    shown = capsys.readouterr().out
    assert "10.0.0.1" in shown
    assert "authority" in shown
