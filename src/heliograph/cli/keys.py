"""`helio keys`: a domain's certificate authority, and identities of stations for TLS between hosts.

helio keys init keys --domain airspace               the authority; keep it where identities are made
helio keys add keys site-a --host 10.0.0.1           an identity, for the host of that station
helio keys renew keys site-a                         the same anew, with a new key
helio keys show keys                                 names, hosts, and until when they are valid
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.output import JsonFlag, print_json, print_line, print_table, show_help_without_command
from heliograph.cli.station import Domain  # noqa: TC001 - typer reads annotations at run time

if TYPE_CHECKING:
    from heliograph.links.keys import CertificateIdentity

app = typer.Typer(help="Make identities of stations for TLS between hosts.", no_args_is_help=False)

Folder = Annotated[str, typer.Argument(help="Where the keys of the domain are.")]
Name = Annotated[str, typer.Argument(help="The name of the station or site.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host", help="A name or address at which others connect to it. Repeatable.", show_default=False
    ),
]
Days = Annotated[int, typer.Option(help="For how many days it is valid.")]


@app.callback(invoke_without_command=True)
def _keys(context: typer.Context) -> None:
    show_help_without_command(context)


@app.command()
def init(folder: Folder, *, domain: Domain = "default", as_json: JsonFlag = False) -> None:
    """Make the certificate authority of a domain."""
    from heliograph.links.keys import make_authority  # noqa: PLC0415 - commands import what they need when they run

    _print(make_authority(folder, domain), as_json=as_json)


@app.command()
def add(
    folder: Folder, name: Name, *, host: Hosts = None, days: Days = 365, as_json: JsonFlag = False
) -> None:
    """Make an identity, signed by the authority in the folder."""
    from heliograph.links.keys import make_identity  # noqa: PLC0415 - as above

    _print(make_identity(folder, name, host or (), days=days), as_json=as_json)


@app.command()
def renew(
    folder: Folder, name: Name, *, host: Hosts = None, days: Days = 365, as_json: JsonFlag = False
) -> None:
    """Make an identity anew, for the same hosts and with a new key; its station takes it when it starts."""
    from heliograph.links.keys import make_identity  # noqa: PLC0415 - as above

    _print(make_identity(folder, name, host or (), days=days, anew=True), as_json=as_json)


@app.command()
def show(folder: Folder, *, as_json: JsonFlag = False) -> None:
    """List the identities in a folder."""
    from heliograph.links.keys import identities  # noqa: PLC0415 - as above

    rows = [_row(identity) for identity in identities(folder)]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])
    else:
        print_line(f"no keys in {folder}: helio keys init {folder} --domain NAME")


def _print(identity: CertificateIdentity, *, as_json: bool) -> None:
    if as_json:
        print_json(_row(identity))
    else:
        print_line(
            f"{identity.name} of domain {identity.domain} in {identity.folder}, "
            f"valid until {identity.until:%Y-%m-%d}"
        )


def _row(identity: CertificateIdentity) -> dict[str, Any]:
    return {
        "name": identity.name,
        "domain": identity.domain,
        "hosts": list(identity.hosts),
        "until": identity.until.isoformat(),
        "expired": identity.is_expired,
    }


def _cell(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value
