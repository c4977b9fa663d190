"""Jobs whose documents were written to get past a cluster's limits, or at what is somebody else's."""

from __future__ import annotations

import pytest
from tests.unit.incoming_support import Knowing, a_job, a_review, documents, limited

from mpijob.cluster import reviewing
from mpijob.dialects import terms
from mpijob.model import Resources

pytestmark = pytest.mark.security


@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
@pytest.mark.parametrize(
    "rest",
    [
        '{"workers":2,"resources":{"gpu":0},"deadline_seconds":1,"image":"good/x"}',
        '{"elastic":{"min_workers":1,"max_workers":2}}',
        '{"presets":["nonsense"]}',
        *("{", "[]", "null", "1", '{"elastic":{"min_workers":"x"}}'),
    ],
)
def test_what_a_job_says_of_itself_in_our_annotation_gets_it_past_no_limit(kind: str, rest: str) -> None:
    job = a_job(workers=100, image="evil:1", deadline_seconds=99.0, resources=Resources(gpu=8))
    *runtime, document = documents(job, kind)
    document["metadata"]["annotations"] = {terms.REST_ANNOTATION: rest}
    around = limited(max_workers=4, max_gpus=8, max_duration_seconds=60.0, allowed_images=("good/",))
    response = reviewing.answer("/judge", a_review(document), Knowing(around, *runtime))["response"]
    causes = [one["field"] for one in response["status"]["details"]["causes"]]
    assert causes == ["image", "workers", "resources.gpu", "deadline_seconds"]
