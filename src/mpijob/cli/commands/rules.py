"""The `rules` commands: list diagnosis rules, and check a site's own."""

from __future__ import annotations

import click

from mpijob.cli import exit_codes
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, command
from mpijob.cli.output import Format, finding_lines
from mpijob.cli.render import text


@click.group("rules", context_settings=SETTINGS)
def rules() -> None:
    """List the diagnosis rules, and test rules of your site."""


@command("list", outputs=(Format.TABLE, Format.JSON, Format.YAML, Format.NAME), namespace=False)
@pass_app
def list_rules(app: App) -> None:
    """List diagnosis rules, rules of your site first."""
    from mpijob.client.observe.diagnose import site_rules
    from mpijob.diagnosis.rules import RULES

    own = site_rules(app.settings())
    rows = [(rule.id, "site" if rule in own else "mpijob", rule.title) for rule in (*own, *RULES)]
    if app.out.structured:
        app.out.value([{"id": name, "from": where, "title": title} for name, where, title in rows])
    elif app.out.format is Format.NAME:
        app.out.lines(name for name, _, _ in rows)
    else:
        app.out.lines(text.table(("ID", "FROM", "TITLE"), rows))


@command("test", outputs=(Format.TABLE, Format.JSON, Format.YAML), namespace=False)
@click.argument("file", metavar="FILE")
@pass_app
def test_rules(app: App, file: str) -> None:
    """Validate a rule file, and test each rule with its examples."""
    from mpijob.backends import site_rule_loader

    found, wrong = site_rule_loader.check(file)
    examples = sum(len(rule.examples) + len(rule.innocent) for rule in found)
    if app.out.structured:
        app.out.value({"rules": len(found), "examples": examples, "findings": wrong})
    elif wrong:
        app.out.lines(finding_lines(wrong))
    else:
        app.out.line(f"{file}: {len(found)} rules, {examples} examples, all in order")
    if wrong:
        exit_codes.end(exit_codes.USAGE)


rules.add_command(list_rules)
rules.add_command(test_rules)
