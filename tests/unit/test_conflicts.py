"""A conflict says what happened, with the values that are known."""

import pytest

import controlplane as cp

NEXT = "; read the subject again and decide anew"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (
            {"expected": 3, "last": 5, "code": 10071},
            "expected sequence 3 but the last is 5 (err_code 10071)",
        ),
        (
            {"expected": 0, "last": None, "code": 10164},
            "expected sequence 0 but the last is another (err_code 10164)",
        ),
        (
            {"expected": None, "last": 5, "code": 10071},
            "was refused: one of its subjects has another last, 5 (err_code 10071)",
        ),
        (
            {"expected": None, "last": None, "code": 10201},
            (
                "was refused: one of its subjects has another last, or knew it already "
                "(err_code 10201)"
            ),
        ),
        (
            {"expected": None, "last": 5, "code": 0, "reason": "is not there any more"},
            "is not there any more",
        ),
        (
            {"expected": 3, "last": 5, "code": 0},
            "expected sequence 3 but the last is 5",
        ),
    ],
)
def test_a_conflict_says_what_is_known_and_nothing_else(known, said):
    error = cp.AppendConflictError(subject="log.port.h.80", **known)
    assert str(error) == f"append to log.port.h.80 {said}{NEXT}"
    assert "None" not in str(error)
    assert (error.expected, error.last) == (known["expected"], known["last"])
