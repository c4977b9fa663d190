"""The queue of a namespace, given by the webhook to jobs that name none."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.incoming_support import a_job, a_review, applied, documents

from mpijob.formats.admission import request_reader
from mpijob.formats.kubernetes.metadata import controller_notes, well_known
from mpijob.model.ref import JobRef

KINDS = ("TrainJob", "MPIJob")


def let_in(document: dict[str, Any]) -> Any:
    return applied(document, request_reader.patches(a_review(document), queue="main"))


def queue_of(document: dict[str, Any]) -> object:
    return document["metadata"]["labels"].get(well_known.QUEUE_LABEL)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_waits_for_others_goes_into_its_queue_only_then(kind: str) -> None:
    """In the queue at once, Kueue would start it before they have ended."""
    document = documents(a_job(), kind)[-1]
    controller_notes.hold(document, ["first"], [JobRef("cv", "first", "u1")])
    made = let_in(document)
    note = controller_notes.read(made)
    assert (queue_of(made), note) == (None, controller_notes.Note({"first": "u1"}, "main"))
    assert note is not None
    assert controller_notes.release(made, note)["metadata"]["labels"] == {well_known.QUEUE_LABEL: "main"}


@pytest.mark.security
@pytest.mark.parametrize("kind", KINDS)
def test_a_note_on_a_job_that_does_not_rest_spares_it_no_queue(kind: str) -> None:
    document = documents(a_job(), kind)[-1]
    controller_notes.hold(document, ["first"], [JobRef("cv", "first", "u1")])
    policy = document["spec"].get("runPolicy", document["spec"])
    policy["suspend"] = False
    assert queue_of(let_in(document)) == "main"
