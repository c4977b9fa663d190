"""What the files of an image say, and what is judged of it: images made on the spot, nothing is run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests import images
from tests.images import INTEL, SYSTEM, Thing, folder, image, library, link, mpi4py, mpich, openmpi, program
from tests.unit.cli_support import Cli

from mpijob import inspect_image
from mpijob.checks import images as judged
from mpijob.errors import Finding, InvalidJob, Severity
from mpijob.formats.images import file_probes
from mpijob.model import Family
from mpijob.model.spec.image import ImageReport, Reference, Verdict

OPENMPI4 = {**SYSTEM, **openmpi()}
DOCS = Path(__file__).parents[3] / "docs" / "troubleshooting"
SITE = "usr/lib/python3.11/site-packages"


def report(place: Path, *stack: dict[str, Thing], **more: Any) -> ImageReport:
    number = len(list(place.iterdir()))
    return inspect_image(str(image(*stack, **more).archive(place / f"image-{number}.tar")))


def told(found: ImageReport, code: str) -> Finding:
    (one,) = [finding for finding in found.findings if finding.code == code]
    assert one.message
    assert one.hint
    return one


def test_an_image_that_is_fit_has_nothing_but_notices(tmp_path: Path) -> None:
    found = report(tmp_path, {**OPENMPI4, **mpi4py("libmpi.so.40")})
    assert found.verdict is Verdict.READY
    assert {one.code for one in found.findings} == {"IMAGE_FIXED_USER", "IMAGE_SSHD_CONFIG"}
    assert {one.severity for one in found.findings} == {Severity.NOTICE}
    assert found.image.mpi4py is not None
    assert (found.image.mpi4py.version, found.image.system) == ("4.0.0", "Small Linux 1")


@pytest.mark.parametrize(
    ("things", "family", "version"),
    [
        (openmpi("3.1.6"), Family.OPENMPI, "3.1.6"),
        (openmpi("4.1.4"), Family.OPENMPI, "4.1.4"),
        (openmpi("5.0.11"), Family.OPENMPI, "5.0.11"),
        (mpich("5.0.2"), Family.MPICH, "5.0.2"),
        (
            {
                "opt/intel/mpi/bin/mpirun": program(b"#!/bin/sh"),
                "opt/intel/mpi/bin/impi_info": program(),
                "opt/intel/mpi/lib/libmpi.so.12": library(
                    "libmpi.so.12", words=(INTEL, b"1.3.2", b"2021.18.1")
                ),
            },
            Family.INTEL,
            "2021.18.1",
        ),
    ],
)
def test_family_and_version_are_told(
    things: dict[str, Thing], family: Family, version: str, tmp_path: Path
) -> None:
    found = report(tmp_path, {**SYSTEM, **things}, env=["PATH=/opt/intel/mpi/bin:/usr/bin:/usr/sbin"]).image
    assert found.mpi is not None
    assert (found.mpi.family, found.mpi.version, found.launcher_family) == (family, version, family)


@pytest.mark.parametrize(
    ("name", "version"),
    [("40.0.2", "3.0"), ("40.10.4", "3.1"), ("40.20.3", "4.0"), ("40.30.4", "4.1"), ("40.40.1", "5.0")],
)
def test_the_number_of_the_interface_tells_a_version_that_nothing_else_tells(
    name: str, version: str, tmp_path: Path
) -> None:
    things = {**SYSTEM, "usr/bin/mpirun": program(), "usr/bin/orted": program()}
    things[f"usr/lib/libmpi.so.{name}"] = library("libmpi.so.40", words=(images.OPENMPI,))
    found = report(tmp_path, things).image.mpi
    assert str(found) == f"Open MPI {version}.x"


def test_alternatives_are_followed_as_debian_has_them(tmp_path: Path) -> None:
    things = {
        **OPENMPI4,
        "usr/bin/mpirun": link("/etc/alternatives/mpirun"),
        "etc/alternatives/mpirun": link("/usr/bin/mpirun.openmpi"),
        "usr/bin/mpirun.openmpi": link("orterun"),
    }
    assert report(tmp_path, things).image.launcher_family is Family.OPENMPI


def test_an_image_without_mpi_ssh_or_shell_is_not_fit(tmp_path: Path) -> None:
    found = report(tmp_path, {"etc/passwd": SYSTEM["etc/passwd"]})
    assert found.verdict is Verdict.BROKEN
    for code in ("IMAGE_NO_MPI", "IMAGE_NO_SSH", "IMAGE_NO_SHELL"):
        assert told(found, code).severity is Severity.ERROR
    outside = report(tmp_path, {**SYSTEM, **openmpi(at="opt/mpi")})
    assert "is at /opt/mpi/lib/libmpi.so.40" in told(outside, "IMAGE_NO_MPI").message


def test_a_launcher_without_its_library_is_a_warning(tmp_path: Path) -> None:
    found = report(tmp_path, {**SYSTEM, "usr/bin/mpirun": program()})
    assert found.verdict is Verdict.DOUBTFUL
    assert told(found, "IMAGE_NO_MPI").severity is Severity.WARNING


def test_two_mpis_in_one_image_are_named_with_the_one_that_mpirun_is_of(tmp_path: Path) -> None:
    found = report(tmp_path, {**SYSTEM, **mpich(at="opt/mpich"), **openmpi()})
    said = told(found, "IMAGE_SEVERAL_MPI").message
    assert "Open MPI 4.1.4 in /usr/lib" in said
    assert "MPICH 4.2.1 in /opt/mpich/lib" in said
    assert "mpirun is that of Open MPI" in said


@pytest.mark.req("Q9")
@pytest.mark.parametrize(("needs", "fits"), [("libmpi.so.40", False), ("libmpi.so.12", True)])
def test_an_mpi4py_for_another_mpi_is_found(needs: str, fits: bool, tmp_path: Path) -> None:
    found = report(tmp_path, {**SYSTEM, **mpich(), **mpi4py(needs)})
    assert found.ok is fits
    if not fits:
        assert (
            "libmpi.so.40, but mpirun is that of MPICH 4.2.1 (libmpi.so.12)"
            in told(found, "IMAGE_MPI4PY").message
        )


def test_an_mpi4py_for_several_mpis_fits_each(tmp_path: Path) -> None:
    both = mpi4py("libmpi.so.12") | {
        f"{SITE}/mpi4py/MPI.openmpi.cpython-311.so": library("", ("libmpi.so.40",))
    }
    found = report(tmp_path, {**OPENMPI4, **both})
    assert found.ok
    assert found.image.mpi4py is not None
    assert found.image.mpi4py.needs == ("libmpi.so.12", "libmpi.so.40")


@pytest.mark.parametrize("mark", [images.capability(), images.base64_capability()])
def test_a_program_that_demands_capabilities_is_a_trap(mark: dict[str, str], tmp_path: Path) -> None:
    things = {**OPENMPI4, "usr/sbin/sshd": program(pax=mark), "usr/bin/ping": program(pax=mark)}
    found = report(tmp_path, things)
    assert found.image.trapped == {"/usr/sbin/sshd": ("cap_net_bind_service",)}
    assert "setcap -r /usr/sbin/sshd" in told(found, "IMAGE_SETCAP").hint


def test_capabilities_without_the_mark_that_makes_them_effective_are_harmless(tmp_path: Path) -> None:
    things = {**OPENMPI4, "usr/sbin/sshd": program(pax=images.capability(effective=False))}
    assert report(tmp_path, things).ok


def test_a_python_in_roots_home_is_closed_to_ordinary_users(tmp_path: Path) -> None:
    things = {**OPENMPI4, "root/conda/bin/python3": program(), "usr/bin/python3": Thing()}
    things |= {"root/conda": folder(), "root": folder(0o700, gid=7)}
    found = report(tmp_path, things, env=["PATH=/root/conda/bin:/usr/bin"])
    assert "/root has mode 0700" in told(found, "IMAGE_CLOSED").message
    opened = {**things, "root": folder(0o755)}
    assert report(tmp_path, opened, env=["PATH=/root/conda/bin:/usr/bin"]).ok


def test_an_image_for_any_user_is_told_as_one(tmp_path: Path) -> None:
    things = {**OPENMPI4, "etc/passwd": Thing(SYSTEM["etc/passwd"].data, 0o664), "home/mpi": folder(0o770)}
    config = b"Port 2222\nPidFile none\nUsePAM no\nStrictModes no\nMatch User x\n  UsePAM yes\n"
    things["etc/ssh/sshd_config"] = Thing(config)
    found = report(tmp_path, things, user="mpi")
    assert (found.image.home, found.image.home_open, found.image.passwd_open) == ("/home/mpi", True, True)
    assert found.findings == ()


def test_files_beside_the_configuration_of_sshd_come_first(tmp_path: Path) -> None:
    more = {"etc/ssh/sshd_config.d/10-mine.conf": Thing(b"Port=2222\nPidFile /tmp/sshd.pid\n")}
    found = report(tmp_path, {**OPENMPI4, **more})
    assert found.image.sshd is not None
    assert found.image.sshd.settings == {"port": "2222", "pidfile": "/tmp/sshd.pid", "usepam": "yes"}
    assert told(found, "IMAGE_SSHD_CONFIG").message.endswith(": UsePAM is yes, StrictModes is yes")


def test_cuda_without_an_mpi_for_it_is_a_warning_and_a_part_for_it_mends_that(tmp_path: Path) -> None:
    cuda = {
        **OPENMPI4,
        "usr/local/cuda/lib64/libcudart.so.12.4.127": Thing(),
        "usr/lib/libnccl.so.2.21.5": Thing(),
    }
    found = report(tmp_path, cuda)
    assert (found.image.cuda, found.image.nccl, found.verdict) == ("12.4.127", "2.21.5", Verdict.DOUBTFUL)
    assert "CUDA 12.4.127" in told(found, "IMAGE_NOT_CUDA_AWARE").message
    aware = report(tmp_path, cuda | {"usr/lib/openmpi/mca_accelerator_cuda.so": Thing()})
    assert aware.verdict is Verdict.READY


# -- two images -------------------------------------------------------------------------------------------
@pytest.mark.req("Q9")
@pytest.mark.parametrize(
    ("launcher", "workers", "severity"),
    [
        (openmpi("4.1.4"), mpich(), Severity.ERROR),
        (openmpi("4.1.4"), openmpi("5.0.7"), Severity.ERROR),
        (openmpi("4.0.7"), openmpi("4.1.4"), Severity.ERROR),
        (openmpi("4.1.4"), openmpi("4.1.6"), Severity.WARNING),
        (openmpi("4.1.4"), openmpi("4.1.4"), None),
        (mpich("4.1.0"), mpich("4.2.1"), Severity.WARNING),
    ],
)
def test_the_mpi_of_launcher_and_workers_is_compared(
    launcher: dict[str, Thing], workers: dict[str, Thing], severity: Severity | None, tmp_path: Path
) -> None:
    one = image({**SYSTEM, **launcher}).archive(tmp_path / "launcher.tar")
    other = image({**SYSTEM, **workers}).archive(tmp_path / "workers.tar")
    found = inspect_image(str(other), launcher=str(one))
    severities = [finding.severity for finding in found.findings if finding.code == "IMAGE_MPI_DIFFERS"]
    assert severities == ([severity] if severity else [])
    if severity is Severity.ERROR:
        assert "the launcher's image has Open MPI 4." in told(found, "IMAGE_MPI_DIFFERS").message


def test_images_whose_mpi_cannot_be_told_are_not_compared(tmp_path: Path) -> None:
    found = report(tmp_path, OPENMPI4).image
    assert judged.compare(msgspec.structs.replace(found, mpis=()), found) == ()


BAD: dict[str, tuple[dict[str, Thing], list[str]]] = {
    "IMAGE_NO_MPI": ({**SYSTEM, **openmpi(at="opt/mpi")}, []),
    "IMAGE_SEVERAL_MPI": ({**SYSTEM, **mpich(at="opt/mpich"), **openmpi()}, []),
    "IMAGE_NO_SSH": ({"usr/bin/sh": program()}, []),
    "IMAGE_NO_SHELL": ({"etc/passwd": Thing()}, []),
    "IMAGE_SETCAP": ({**OPENMPI4, "usr/sbin/sshd": program(pax=images.capability())}, []),
    "IMAGE_CLOSED": (
        {**OPENMPI4, "root/conda/bin/python3": program(), "root": folder(0o700)},
        ["PATH=/root/conda/bin:/usr/bin"],
    ),
    "IMAGE_MPI4PY": ({**SYSTEM, **mpich(), **mpi4py("libmpi.so.40")}, []),
    "IMAGE_NOT_CUDA_AWARE": ({**OPENMPI4, "usr/lib/libcudart.so.12.4.127": Thing()}, []),
    "IMAGE_FIXED_USER": (OPENMPI4, []),
    "IMAGE_SSHD_CONFIG": (OPENMPI4, []),
}


@pytest.mark.parametrize("code", BAD)
def test_the_page_of_a_code_quotes_what_is_said(code: str, tmp_path: Path) -> None:
    things, env = BAD[code]
    page = (DOCS / f"{code.lower()}.md").read_text(encoding="utf-8")
    assert f"\n> {told(report(tmp_path, things, env=env), code).message}\n" in page


def test_the_page_about_two_images_quotes_what_is_said(tmp_path: Path) -> None:
    one, other = report(tmp_path, OPENMPI4).image, report(tmp_path, {**SYSTEM, **mpich()}).image
    (said,) = judged.compare(one, other)
    assert f"\n> {said.message}\n" in (DOCS / "image_mpi_differs.md").read_text(encoding="utf-8")


# -- faces ------------------------------------------------------------------------------------------------
def test_the_command_tells_what_the_sdk_tells(tmp_path: Path) -> None:
    path = str(image({**OPENMPI4, **mpi4py("libmpi.so.40")}).archive(tmp_path / "image.tar"))
    table = Cli().ok("image", "inspect", path)
    assert "MPI:      Open MPI 4.1.4 (/usr/lib/libmpi.so.40)" in table
    assert "verdict:  ready" in table
    found = Cli().json("image", "inspect", path)
    assert found["verdict"] == "ready"
    assert found["image"]["mpis"][0]["version"] == "4.1.4"
    assert msgspec.convert(found, ImageReport) == inspect_image(path)


def test_an_image_that_is_not_fit_ends_the_command_with_1(tmp_path: Path) -> None:
    path = str(image(SYSTEM).archive(tmp_path / "image.tar"))
    done = Cli()("image", "inspect", path, "-o", "json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["findings"][0]["code"] == "IMAGE_NO_MPI"
    done = Cli()("image", "inspect", str(tmp_path / "none.tar"))
    assert done.exit_code == 3
    assert "does not exist" in done.stderr


@pytest.mark.security
def test_what_an_image_says_reaches_no_terminal_as_control_bytes_and_its_secrets_are_not_shown(
    tmp_path: Path,
) -> None:
    things = {**OPENMPI4, "etc/os-release": Thing(b'PRETTY_NAME="\x1b[2Jgone"\n')}
    path = str(
        image(things, env=["TOKEN=hunter2", "PATH=/usr/bin:/usr/sbin"]).archive(tmp_path / "image.tar")
    )
    assert "\x1b" not in Cli().ok("image", "inspect", path)
    shown = json.dumps(Cli().json("image", "inspect", path))
    assert "\x1b" not in shown
    assert "hunter2" not in shown


# -- names and single files -------------------------------------------------------------------------------
@pytest.mark.req("FR-INT-004")
@pytest.mark.parametrize(
    ("text", "host", "path", "version"),
    [
        ("ubuntu", "docker.io", "library/ubuntu", "latest"),
        ("team/mpi:1", "docker.io", "team/mpi", "1"),
        ("localhost/mpi", "localhost", "mpi", "latest"),
        ("registry.example.com:5000/a/b_c/d--e:1.0-x", "registry.example.com:5000", "a/b_c/d--e", "1.0-x"),
        (f"quay.example.com/a/b@sha256:{'a' * 64}", "quay.example.com", "a/b", f"sha256:{'a' * 64}"),
        (f"quay.example.com/a/b:1@sha256:{'a' * 64}", "quay.example.com", "a/b", f"sha256:{'a' * 64}"),
        ("[::1]:5000/a:1", "[::1]:5000", "a", "1"),
    ],
)
def test_a_name_is_read_as_container_engines_read_it(text: str, host: str, path: str, version: str) -> None:
    found = Reference.parse(text)
    assert (found.host, found.path, found.version) == (host, path, version)


@pytest.mark.parametrize(
    "text", ["", "Team/MPI", "a b", "a:", "-a", "a@sha256:12", "a/../b", "x" * 600, "a//b", "a\n"]
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob, match="is not the name of an image"):
        Reference.parse(text)


def test_a_real_library_is_read_as_readelf_reads_it() -> None:
    import numpy

    path = next(Path(numpy.__file__).parent.rglob("_multiarray_umath*.so"))
    _, needed = file_probes.dynamic(path.read_bytes())
    expected = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout
    assert needed
    assert all(name in expected for name in needed)


@pytest.mark.security
def test_a_library_that_is_cut_or_broken_says_nothing_and_breaks_nothing() -> None:
    data = library("libmpi.so.40", ("libc.so.6",)).data
    assert file_probes.dynamic(data) == ("libmpi.so.40", ("libc.so.6",))
    for end in range(len(data)):
        file_probes.dynamic(data[:end])
    for at in range(64, len(data)):
        file_probes.dynamic(data[:at] + b"\xff" + data[at + 1 :])
    assert file_probes.dynamic(b"text") == ("", ())
