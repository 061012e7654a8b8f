"""Dialogs as values: what is chosen, typed and wrong; and as lines, whatever the question holds."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import session_events as s
from windlass.answers import validate
from windlass.interfaces.terminal.dialog import Dialog, match_text, move, open_dialog, submit, toggle
from windlass.interfaces.terminal.dialog_view import dialog_lines, text_room
from windlass.interfaces.terminal.editor import CUT, edit, editor_of
from windlass.interfaces.terminal.hints import hints
from windlass.interfaces.terminal.markdown import markdown
from windlass.interfaces.terminal.output_thread import OutputThread
from windlass.interfaces.terminal.spans import Look, cells, plain
from windlass.model import Answer, Choice, Question
from windlass.text import HIDDEN

CHOICE = Question(
    "approve", "Approve?", (Choice("approve", "Approve"), Choice("revise", "Revise"), Choice("x", "Abort"))
)
MANY = replace(CHOICE, options=tuple(Choice(f"k{n}", f"Option {n}") for n in range(40)))
MULTI = replace(CHOICE, type="multi")
NUMBER = Question("batch", "How many?", type="input", default="3", check="int")
CONFIRM = Question("sure", "Sure?", type="confirm")
COMMENT = replace(CHOICE, comment="required-unless-approve")


def lines(dialog: Dialog, width: int = 80, room: int = 20, text: str = "", unicode: bool = True) -> list[str]:
    look = Look(width, room, unicode)
    return plain(dialog_lines(dialog, markdown(text, look), look, room)).splitlines()


def problem(found: Dialog | Answer) -> str:
    assert isinstance(found, Dialog)
    return found.problem


# -- choosing


@pytest.mark.parametrize("text", ["revise", "2", "Revise", " REVISE "])
def test_a_choice_is_made_by_key_number_or_label(text: str) -> None:
    assert submit(open_dialog(CHOICE), text) == Answer("revise", "", "terminal")


def test_a_stray_enter_chooses_nothing() -> None:
    assert "choose one" in problem(submit(open_dialog(CHOICE), ""))


def test_enter_takes_the_default_or_what_the_arrows_point_at() -> None:
    with_default = open_dialog(replace(CHOICE, default="revise"))
    assert submit(with_default, "") == Answer("revise", "", "terminal")
    assert submit(move(with_default, 1), "") == Answer("x", "", "terminal")
    assert submit(move(open_dialog(CHOICE), -1), "") == Answer("x", "", "terminal")


def test_words_that_name_an_option_point_at_it_and_others_point_at_none() -> None:
    assert [match_text(open_dialog(CHOICE), text).cursor for text in ("revise", "2", "Abort", "rev", "9")] == [
        1,
        1,
        2,
        -1,
        -1,
    ]


@pytest.mark.parametrize("text", ["0", "4", "-1", "99999999", "approve revise", "appr"])
def test_what_names_no_option_is_said_and_chooses_nothing(text: str) -> None:
    assert problem(submit(open_dialog(CHOICE), text)).startswith("one of 1) approve, 2) revise")


def test_several_are_marked_with_space_or_named_with_commas() -> None:
    dialog = toggle(move(toggle(move(open_dialog(MULTI), 1)), 2))
    assert submit(dialog, "") == Answer("approve,x", "", "terminal")
    assert submit(open_dialog(MULTI), "3, Approve") == Answer("approve,x", "", "terminal")
    assert submit(toggle(dialog), "") == Answer("approve", "", "terminal")
    assert problem(submit(open_dialog(MULTI), "1, 9")).startswith("some of")
    assert validate(MULTI, "x,x,2") == Answer("revise,x")


def test_an_input_has_its_default_and_its_check() -> None:
    assert submit(open_dialog(NUMBER), "") == Answer("3", "", "terminal")
    assert submit(open_dialog(NUMBER), "5") == Answer("5", "", "terminal")
    assert problem(submit(open_dialog(NUMBER), "five")) == "a whole number from 1 is expected"


def test_a_confirmation_is_yes_or_no_by_key_or_arrow() -> None:
    assert submit(open_dialog(CONFIRM), "yes") == Answer("yes", "", "terminal")
    assert submit(move(move(open_dialog(CONFIRM), 1), 1), "") == Answer("no", "", "terminal")
    assert problem(submit(open_dialog(CONFIRM), "y")) == "yes or no is expected"


def test_a_choice_that_needs_a_comment_asks_for_it_and_does_not_go_on_without() -> None:
    asked = submit(open_dialog(COMMENT), "revise")
    assert isinstance(asked, Dialog)
    assert (asked.asks, asked.lists) == ("What should change?", False)
    assert "needs a comment" in problem(submit(asked, "  "))
    assert submit(asked, "smaller tasks") == Answer("revise", "smaller tasks", "terminal")
    assert submit(open_dialog(COMMENT), "approve") == Answer("approve", "", "terminal")


@pytest.mark.req("S1-68")
def test_a_comment_for_the_editor_opens_it() -> None:
    asked = submit(open_dialog(replace(CHOICE, comment="editor")), "revise")
    assert isinstance(asked, Dialog)
    assert asked.wants_editor
    assert open_dialog(Question("q", "Write", type="editor")).wants_editor
    assert not open_dialog(COMMENT).wants_editor


# -- showing


def test_the_options_with_the_chosen_one_pointed_at() -> None:
    about = replace(
        CHOICE, options=(Choice("single-pass", "Single pass", "one round"), Choice("iterative", "Iterative"))
    )
    assert lines(open_dialog(replace(about, default="iterative"))) == [
        "? Approve?",
        "    1 Single pass: one round",
        "  ▸ 2 Iterative (default)",
    ]


def test_a_key_that_only_spells_its_label_is_not_said_twice() -> None:
    long = "Names are kept in a file that every user of this service can read"
    said = (("everything-but-health", "Everything but /health"), ("names-are-kept-in-a-file-that-every-user", long))
    options = tuple(Choice(*one) for one in (*said, ("fix", "Fix them"), ("option-4", "東京")))
    assert [line[6:] for line in lines(open_dialog(replace(CHOICE, options=options)))[1:]] == [
        *(label for _, label in said),
        "fix — Fix them",
        "option-4 — 東京",
    ]


@pytest.mark.req("S1-34")
def test_a_question_has_its_title_where_there_is_room() -> None:
    titled = open_dialog(replace(CHOICE, title="Question 2 of 5"))
    assert lines(titled)[:2] == ["─── Question 2 of 5 ───", "? Approve?"]
    assert lines(titled, room=6)[0] == "? Approve?"


def test_a_narrow_line_of_hints_is_said_shorter_before_it_is_cut() -> None:
    wide, narrow = (plain(hints(open_dialog(replace(NUMBER, default="")), "3f2a", Look(width))) for width in (80, 60))
    assert wide.strip() == "Enter sends · Esc leaves it open · Ctrl-J new line · Ctrl-O editor"
    assert narrow.strip() == "Enter sends · Esc leaves it open · ^J new line · ^O editor"


def test_forty_options_scroll_with_the_chosen_one_in_sight() -> None:
    for cursor in (-1, 0, 17, 39):
        shown = lines(replace(open_dialog(MANY), cursor=cursor), room=12)
        assert len(shown) <= 12
        assert any(f"Option {max(cursor, 0)}" in line.split("—")[-1] for line in shown)
    assert lines(replace(open_dialog(MANY), cursor=39), room=12)[1].strip() == "↑ 31 more"
    assert lines(open_dialog(MANY), room=12)[-1].strip() == "↓ 31 more"


def test_a_label_of_five_thousand_letters_is_three_lines() -> None:
    long = replace(CHOICE, options=(Choice("a", "word " * 1000), Choice("b", "x" * 5000)))
    assert len(lines(open_dialog(long), room=30)) == 7


def test_options_with_the_same_key_are_told_apart_by_number_and_give_that_key() -> None:
    twins = replace(CHOICE, options=(Choice("same", "One"), Choice("same", "Two")))
    assert submit(open_dialog(twins), "2") == Answer("same", "", "terminal")
    assert [line[:5] for line in lines(open_dialog(twins))[1:]] == ["    1", "    2"]


def test_a_long_text_is_read_page_by_page() -> None:
    text = "\n\n".join(f"paragraph {n}" for n in range(40))
    first = lines(open_dialog(CHOICE), text=text)
    assert len(first) <= 20
    assert "paragraph 0" in first
    assert any(line.endswith("of 79, PgUp PgDn") for line in first)
    look = Look(80, 20)
    page = text_room(open_dialog(CHOICE), markdown(text, look), look, 20)
    second = lines(replace(open_dialog(CHOICE), scroll=page), text=text)
    assert "paragraph 0" not in second
    last = lines(replace(open_dialog(CHOICE), scroll=1000), text=text)
    assert "paragraph 39" in last


def test_a_text_is_markdown_without_terminal_tricks() -> None:
    text = "# Title\n\n- **bold** item\n\n\x1b[31mred\x1b[0m \u202eevil [link](http://x.example/)"
    assert plain(markdown(text, Look(40))).split("\n")[2:] == [
        " • bold item",
        "",
        "red evil link (http://x.example/)",
        "",
    ]


@given(
    st.lists(st.tuples(s.texts, s.texts, s.texts), max_size=45),
    s.texts,
    s.texts,
    st.sampled_from(["choice", "multi", "confirm", "input", "editor"]),
    st.sampled_from([40, 60, 80, 120]),
    st.integers(5, 40),
    st.booleans(),
)
def test_whatever_is_asked_fits_and_hides_nothing(
    options: list[tuple[str, str, str]], text: str, detail: str, kind: str, width: int, room: int, unicode: bool
) -> None:
    question = Question("q", text, tuple(Choice(*option) for option in options), kind, detail=detail, title=text)
    look = Look(width, room, unicode)
    for dialog in (
        open_dialog(question),
        move(open_dialog(question, "no"), 1),
        replace(open_dialog(question), chosen=text),
    ):
        shown = dialog_lines(dialog, markdown(detail, look), look, room)
        for line in [*shown, *hints(dialog, "3f2a", look)]:
            words = "".join(span.text for span in line)
            assert cells(line) <= width
            assert not HIDDEN.search(words)
            assert "\n" not in words
            assert unicode or words.isascii()


# -- the editor


def program(tmp: Path, body: str) -> str:
    path = tmp / "ed it"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"'{path}'"


def test_the_person_names_the_editor() -> None:
    assert editor_of({"VISUAL": " code -w ", "EDITOR": "vi"}) == "code -w"
    assert editor_of({"VISUAL": "", "EDITOR": "vi"}) == "vi"
    assert editor_of({}) == ""


def test_what_is_below_the_line_is_no_answer(tmp_path: Path) -> None:
    found = edit(program(tmp_path, 'sed -i "1s/^/First line. /" "$1"'), "draft", "What?", "the plan")
    assert found == ("First line. draft", "")
    assert CUT not in found.text


@pytest.mark.parametrize("body", ["exit 3", "kill -9 $$"])
def test_an_editor_that_fails_keeps_what_was_written(tmp_path: Path, body: str) -> None:
    text, trouble = edit(program(tmp_path, body), "draft", "What?", "")
    assert text == "draft"
    assert "failed" in trouble


def test_an_editor_that_does_not_exist_is_said() -> None:
    assert "failed" in edit("/nowhere/editor", "draft", "What?", "").problem


def test_an_editor_that_returns_nothing_is_said(tmp_path: Path) -> None:
    assert "returned no text" in edit(program(tmp_path, ': > "$1"'), "", "What?", "").problem


# -- the wire


def test_the_wire_waits_for_nobody_and_loses_nothing() -> None:
    read, write = os.pipe()
    wire = OutputThread(write)
    sent = "x" * 300_000
    wire.write(sent)  # more than the pipe takes: it would wait for ever
    wire.flush()
    assert wire.busy
    got = b""
    while len(got) < len(sent):
        got += os.read(read, 65536)
    wire.close()
    assert got.decode() == sent
    assert not wire.busy
    os.close(read)
    os.close(write)


def test_a_terminal_that_is_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    wire = OutputThread(write)
    for _ in range(3):
        wire.write("words")
        wire.flush()
    wire.close()
    assert wire.gone
    assert not wire.busy
    assert threading.active_count() < 50
    os.close(write)
