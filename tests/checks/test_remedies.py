"""Advice is carried out before it is printed: each remedy that is an action, on a real broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kseg.remedies import START, STOP
from kseg.rule_table import RULES
from tools.lab.remedy_record import CLUSTER, NOT_CARRIED_OUT, SINGLE, WITHOUT_COMMANDS, actions, proof, recorded

ACTIONS = list(actions())


def test_each_action_was_carried_out_or_says_why_not() -> None:
    """A remedy that nobody tried is a guess: a new one needs a row in the table of the lab."""
    for rule, file, action in ACTIONS:
        assert proof(rule, file, action), (rule, file)


def test_actions_stop_the_broker_before_they_change_files() -> None:
    for _, _, action in ACTIONS:
        assert action.commands[-1] == START
        assert action.commands[0] in (STOP, START)


def test_a_remedy_on_files_has_commands() -> None:
    """A remedy that says "stop the broker" comes with the commands to carry out."""
    told = re.compile(r"\bstop the (broker|node)\b|\bcopy the partition\b|\bfolder away\b", re.IGNORECASE)
    without = {
        (rule.name, file)
        for rule in RULES.values()
        for file, remedy in rule.remedies()
        if told.search(remedy.text) and not remedy.actions and (file or not rule.by_file)
    }
    assert without == set(WITHOUT_COMMANDS)


def test_reasons_are_of_rules_with_an_action() -> None:
    assert {rule for rule, _, _ in ACTIONS} >= NOT_CARRIED_OUT.keys()


@pytest.mark.kafka
def test_remedies_leave_a_partition_as_it_was(tmp_path: Path) -> None:
    """Records, transactions, producers, epochs, deleted records and indexes, after a clean stop and after a kill."""
    from tools.lab.remedy_cases import TABLE
    from tools.lab.remedy_lab import outcomes, rows

    assert rows(TABLE) == recorded(SINGLE)
    found = outcomes(tmp_path)
    assert not {case: faults for case, faults in found.items() if faults}


@pytest.mark.kafka
def test_a_damaged_replica_is_fetched_from_the_leader(tmp_path: Path) -> None:
    """Leaders and followers, after a kill and a clean stop: all in sync, every record, and equal to another replica."""
    from tools.lab.remedy_cluster import outcomes, table
    from tools.lab.remedy_lab import rows

    assert rows(table()) == recorded(CLUSTER)
    found = outcomes(tmp_path)
    assert not {case: faults for case, faults in found.items() if faults}


def test_names_of_files_are_not_paths() -> None:
    """The remedy of a file is found by its name, whatever its folder, also in a URL."""
    rule = RULES["checkpoint-malformed"]
    assert rule.remedy_for("s3://bucket/dir/leader-epoch-checkpoint") is rule.by_file["leader-epoch-checkpoint"]
    assert rule.remedy_for("other").text == rule.remedy
