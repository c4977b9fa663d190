"""Shell scripts are taken apart without a shell: whatever they hold, nothing is lost, nothing runs, nothing stalls."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.properties import examples

from mpijob.client.convert.convert_jobs import convert
from mpijob.errors import MpiJobError
from mpijob.formats.convert import batch_script
from mpijob.formats.convert.shell.constants import constant, filled, mentioned
from mpijob.formats.convert.shell.parser import Statement, statements

SETTINGS = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
SCRAPS = [
    *("#SBATCH ", "#PBS ", "-N 2", "--ntasks=4", "--array=0-3", "hetjob", "-l select=2:ncpus=4", "srun ", "mpirun "),
    *("-n 4 ", "./a.out", " ", "\n", "\n", "\\\n", "'", '"', "`", "$(", ")", "${", "}", "$X", "<<EOF", "\nEOF\n"),
    *("<<-'E'", ">", "2>&1", "|", "||", "&&", "&", ";", ";;", "(", "{ ", "if ", "then ", "fi", "for i in 1; do "),
    *("done", "case x in ", "esac", "#", "export A=1", "A=(1 2)", "cd /x", "module load y", "\t"),
    *("\r\n", "\0", "é", "~", "*", "f() {", "[[ -f x ]]"),
]  # fmt: skip
LINES = [
    "D=/scratch/$SLURM_JOB_ID", "mkdir -p $D", "cd $D", "cd $SLURM_SUBMIT_DIR", "cd /data", "cd -", "cp in $D/",
    "srun ./a", "srun ./a > log", "srun ./a $D/x", "timeout 5 mpirun ./b < in | tee log", "cp out $SLURM_SUBMIT_DIR",
    "cp out $D /archive", "rm -rf $D", "grep x log", "./post log", "srun ./a || { echo no; exit 1; }", "RC=$?", "f",
    "if [ $RC -ne 0 ]; then exit; fi", "trap 'rm -rf $D' EXIT", "f() { cp out /archive; }", "export D",
    "E=$(grep x log)", "for f in *; do cp $f $D; done",
]  # fmt: skip
scripts = st.lists(st.sampled_from(SCRAPS) | st.text(max_size=4), max_size=40).map("".join)


def words(text: str) -> list[list[str]]:
    return [[word for command in one.commands for word in command.words] for one in statements(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b 'c d' \"e $F\"", [["a", "b", "'c d'", '"e $F"']]),
        ("a \\\n  b\nc", [["a", "b"], ["c"]]),
        ("a # comment\nb#not", [["a"], ["b#not"]]),
        ("a; b && c || d", [["a"], ["b", "c", "d"]]),
        ("a &&\nb", [["a", "b"]]),
        ("x=$(echo ')' \"a b\") y", [["x=$(echo ')' \"a b\")", "y"]]),
        ('echo "$(date "+%s")" z', [["echo", '"$(date "+%s")"', "z"]]),
        ("R=(1 2 3)\nb", [["R=(1 2 3)"], ["b"]]),
    ],
)
def test_words_are_found_as_a_shell_finds_them(text: str, expected: list[list[str]]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "for i in 1 2; do\n a $i\ndone",
        "if a; then b; else c; fi",
        "while read x; do y; done < file",
        "case $x in\n a) b;;\n *) c;;\nesac",
        "f() {\n a\n}",
        "function g {\n a; b\n}",
        "( cd x; make )",
        "{ a; b; }",
        "if a; then\n for i in 1; do b; done\nfi",
    ],
)
def test_a_compound_command_is_one_statement_with_its_text(text: str) -> None:
    found = statements(f"before\n{text}\nafter\n")
    assert [one.text for one in found] == ["before", text, "after"]
    assert found[1].compound


def test_a_here_document_belongs_to_its_command_and_is_no_script() -> None:
    found = statements("cat > f <<'E' && next\nsrun no\nE\nsrun yes\n")
    assert [one.heredoc for one in found] == [True, False]
    assert "srun no" in found[0].text
    assert found[1].commands[0].words == ("srun", "yes")


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("plain", "plain"), ("'a b'", "a b"), ('"a\\"b"', 'a"b'), ("a\\ b", "a b"), ("''", ""), ("a'$X'b", "a$Xb"),
        ("$X", None), ('"$X"', None), ("`x`", None), ("*.py", None), ("~/x", None), ("a{b,c}", None), ("(1", None),
    ],
)  # fmt: skip
def test_a_word_is_constant_when_every_shell_reads_it_alike(word: str, meaning: str | None) -> None:
    assert constant(word) == meaning


def test_known_variables_are_written_out_but_not_in_single_quotes() -> None:
    assert filled("-n $N ${N}x '$N' $M", {"N": "4"}) == "-n 4 4x '$N' $M"
    assert filled("$N", {"N": "4; rm -rf /"}) == "$N"
    assert mentioned("$A ${B} ${C[0]} ${#D}") == {"A", "B", "C", "D"}


@SETTINGS
@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_nothing_that_stands_for_a_name_or_a_place_is_left_in_what_is_told(lines: list[str]) -> None:
    text = "\n".join(("#!/bin/bash", "#SBATCH -J x -N 2", *LINES[:3], *lines, ""))
    (one,) = convert(text, file="x.sbatch")
    kept = "".join(one.texts)
    assert not re.search(r"<job-|<home>", kept + "".join(str(each) for each in one.entries))
    copies = [each for each in one.entries if each.value.startswith("cp out") and each.fate == "dropped"]
    stays = not any(line.startswith("cd ") for line in lines)
    assert not (stays and copies and "rm -rf $D" in kept), (
        "no directory is removed while a copy from it was left out"
    )


@pytest.mark.security
@SETTINGS
@given(scripts)
def test_no_script_breaks_the_reader(text: str) -> None:
    for one in (text, f"#!/bin/bash\n#SBATCH -N 2\n{text}", f"#PBS -l select=1\n{text}"):
        try:
            found = convert(one, file="x.sh")
        except MpiJobError:
            continue
        assert found[0].source


@pytest.mark.security
@SETTINGS
@given(scripts)
def test_every_letter_of_a_script_is_in_a_statement_a_comment_or_between(text: str) -> None:
    text = text.replace("\0", "")
    said = "".join(one.text for one in statements(text))
    kept = re.sub(r"\s|[;&|()<>\\]", "", said)
    every = re.sub(r"\s|[;&|()<>\\]", "", text)
    rest = iter(every)
    assert all(letter in rest for letter in kept), "statements hold the script's letters in their order"


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize(
    "text",
    [
        "$(" * 20_000, '"' * 50_001, "((" * 20_000, "if " * 20_000, "a=" * 50_000, "<<E\n" * 10_000,
        "'" + "x" * 100_000, "srun " + "a " * 50_000, "`" * 30_001, '"$(' * 10_000, "\\\n" * 50_000,
        "a;" * 10_000, "#SBATCH --array=" + "1," * 5_000,
        "#SBATCH -x n[" + "0-9," * 5_000 + "]", "x" * 500_000,
    ],
)  # fmt: skip
def test_no_script_stalls_the_reader(text: str) -> None:
    began = time.process_time()  # other work on the machine does not count
    with contextlib.suppress(MpiJobError):
        batch_script.read(f"#!/bin/bash\n#SBATCH -n 2\n{text}\n")
    assert time.process_time() - began < 10.0, "less than a second is usual"


@pytest.mark.security
def test_nothing_of_a_script_is_run(tmp_path: Path) -> None:
    touch = f"touch {tmp_path}/a"
    script = f"#!/bin/bash\n#SBATCH -J $({touch})\nX=`{touch}`\n{touch}\nsrun {touch} $({touch})\n"
    convert(script, file="x.sbatch")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_understood_stays_in_the_script() -> None:
    (one,) = convert(
        "#!/bin/bash\n#SBATCH -n 2\nshopt -s nullglob\nfoo=${bar:-x}\nsrun ./a $foo\n", file="x.sbatch"
    )
    text = one.jobs[0].code.files["rank.sh"]
    assert [line for line in text.split("\n") if line] == [
        "#!/bin/bash", "shopt -s nullglob", "foo=${bar:-x}", "exec ./a $foo"
    ]  # fmt: skip


def test_a_statement_knows_its_line() -> None:
    assert [one.line for one in statements("\n\na\nb \\\n c\n<<E cat\nx\nE\nd")] == [3, 4, 6, 9]


def test_a_comment_is_no_statement() -> None:
    assert statements("# a\n  # b\n") == []
    assert isinstance(statements("a")[0], Statement)
