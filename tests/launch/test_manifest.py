"""gke_jobset.yaml: what Kubernetes would say of it, and the JobSet controller.

JobSet is no part of Kubernetes, so its own fields (v1alpha2) are compared with those written here.
"""

import re
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from .scripts import LAUNCH

VARIABLES = {
    "NAME": "base",
    "IMAGE": "europe-docker.pkg.dev/mine/images/transduce:1",
    "WORKDIR": "gs://bucket/base",
    "EXPERIMENT": "experiments/wmt14_ende_base.py",
    "ACCELERATOR": "tpu-v5-lite-podslice",
    "TOPOLOGY": "4x4",
    "HOSTS": "4",
    "CHIPS": "4",
    "SERVICE_ACCOUNT": "trainer",
}

# The fields of each object that the manifest uses; those of a Job and below are Kubernetes' own.
JOBSET = {"apiVersion", "kind", "metadata", "spec"}
SPEC = {
    *("replicatedJobs", "network", "successPolicy", "failurePolicy", "startupPolicy", "suspend"),
    *("coordinator", "managedBy", "ttlSecondsAfterFinished", "volumeClaimPolicies"),
}
FAILURE_POLICY = {"maxRestarts", "restartStrategy", "rules"}
RULE = {
    *("name", "action", "onJobFailureReasons", "onJobFailureMessagePatterns"),
    "targetReplicatedJobs",
}
REPLICATED_JOB = {"name", "groupName", "template", "replicas", "dependsOn"}
STRATEGIES = {"Recreate", "BlockingRecreate", "InPlaceRestart"}
ACTIONS = {"FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob"}
REASONS = {
    *("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded"),
    "PodFailurePolicy",
}


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    text = (LAUNCH / "gke_jobset.yaml").read_text()
    # envsubst knows these two ways to write a variable; it leaves no other dollar sign.
    filled = Template(text).substitute(VARIABLES)
    assert "$" not in filled
    return yaml.safe_load(filled)


def job(manifest: dict[str, Any]) -> dict[str, Any]:
    (replicated,) = manifest["spec"]["replicatedJobs"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}} | {
        "spec": replicated["template"]["spec"]
    }


def test_the_variables_are_those_that_the_readme_lists() -> None:
    text = (LAUNCH / "gke_jobset.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+)\}", text)) == VARIABLES.keys()
    readme = (LAUNCH / "README.md").read_text()
    for name in VARIABLES:
        assert f"export {name}=" in readme


def test_a_jobset_has_no_other_fields_than_jobset_knows(manifest: dict[str, Any]) -> None:
    assert (manifest["apiVersion"], manifest["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert manifest.keys() <= JOBSET
    spec = manifest["spec"]
    assert spec.keys() <= SPEC
    policy = spec["failurePolicy"]
    assert policy.keys() <= FAILURE_POLICY
    assert policy["restartStrategy"] in STRATEGIES
    assert isinstance(policy["maxRestarts"], int)
    for rule in policy["rules"]:
        assert rule.keys() <= RULE
        assert re.fullmatch("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"])
        assert rule["action"] in ACTIONS
        assert set(rule["onJobFailureReasons"]) <= REASONS
    for replicated in spec["replicatedJobs"]:
        assert replicated.keys() <= REPLICATED_JOB
        assert replicated["template"].keys() <= {"metadata", "spec"}


def test_kubernetes_takes_its_job_and_its_pod(manifest: dict[str, Any]) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not here: install it"
    )
    version = kubernetes_validate.latest_version()
    described = job(manifest)
    kubernetes_validate.validate(described, version, strict=True)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}}
    pod |= {"spec": described["spec"]["template"]["spec"]}
    kubernetes_validate.validate(pod, version, strict=True)
    # It would have said so.
    pod["spec"]["containers"][0]["comand"] = ["transduce"]
    with pytest.raises(kubernetes_validate.ValidationError, match="comand"):
        kubernetes_validate.validate(pod, version, strict=True)


def test_each_host_of_the_slice_has_a_pod_with_all_its_chips(manifest: dict[str, Any]) -> None:
    spec = job(manifest)["spec"]
    assert (spec["parallelism"], spec["completions"]) == (4, 4)
    # One process that ends is the end of all, which the JobSet starts anew together.
    assert (spec["backoffLimit"], spec["completionMode"]) == (0, "Indexed")
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    (container,) = pod["containers"]
    assert container["resources"] == {
        "requests": {"google.com/tpu": 4},
        "limits": {"google.com/tpu": 4},
    }
    # What data.workers hand over goes through shared memory.
    (volume,), (mount,) = pod["volumes"], container["volumeMounts"]
    assert volume == {"name": mount["name"], "emptyDir": {"medium": "Memory"}}
    assert mount["mountPath"] == "/dev/shm"
    assert container["command"] == [
        *("transduce", "train", "experiments/wmt14_ende_base.py"),
        *("--workdir", "gs://bucket/base"),
    ]


def test_only_a_wrong_request_is_not_tried_again(manifest: dict[str, Any]) -> None:
    """Status 2 fails its Job by the pod failure policy, and that reason fails the JobSet."""
    (rule,) = job(manifest)["spec"]["podFailurePolicy"]["rules"]
    assert rule == {
        "action": "FailJob",
        "onExitCodes": {"containerName": "train", "operator": "In", "values": [2]},
    }
    (rule,) = manifest["spec"]["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])


def test_the_image_holds_what_the_package_is_built_from() -> None:
    """Each path that the Dockerfile copies is there."""
    lines = Path(LAUNCH / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    paths = [path for group in copied for path in group]
    assert {"pyproject.toml", "constraints.txt", "src", "experiments"} <= set(paths)
    assert [path for path in paths if not (LAUNCH.parent / path).exists()] == []
