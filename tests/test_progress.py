"""How far a sweep is: counted right, said in words that a person reads."""

import time

import pytest

from archlab import progress
from archlab.progress import Tally, duration, of_points, watched
from archlab.record import Record


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_done_failed_rate_and_time_left(clock):
    tally = Tally(1_200)
    assert str(tally) == "0 of 1,200 points, 0 not ok, 0.0 a minute"
    for number in range(400):
        tally.add(ok=number % 100 != 0)
    clock.now += 20
    assert str(tally) == "400 of 1,200 points, 4 not ok, 20 a second, 40 s left"
    for _ in range(800):
        tally.add(ok=True)
    assert str(tally) == "1,200 of 1,200 points, 4 not ok, 60 a second"


def test_slow_points_are_told_by_the_minute(clock):
    tally = Tally(3)
    tally.add(ok=True)
    clock.now += 600
    assert str(tally) == "1 of 3 points, 0 not ok, 0.1 a minute, 20 min left"
    assert [duration(seconds) for seconds in (0, 119, 120, 7199, 7200)] == ["0 s", "119 s", "2 min", "120 min", "2.0 h"]


def test_plain_lines_come_now_and_then(clock, capsys):
    with of_points(1_000) as tally:
        for _ in range(1_000):
            clock.now += 0.1
            tally.add(ok=True)
    lines = capsys.readouterr().err.splitlines()
    assert 20 <= len(lines) <= 40  # every 2 s, then with the time that has passed
    assert lines[0].startswith("[INFO] 21 of 1,000 points")
    assert lines[-1] == "[INFO] 1,000 of 1,000 points, 0 not ok, 10 a second"


def test_quiet_says_nothing(monkeypatch, capsys):
    monkeypatch.setenv(progress.QUIET, "1")
    with of_points(2) as tally:
        tally.add(ok=True)
    with watched([]):
        pass
    assert capsys.readouterr().err == ""


def test_records_of_other_processes_are_counted_as_they_come(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LOOK_EVERY", 0.02)
    for number in (0, 1):  # from before: one is done again, one is left
        Record({}, status="failed").save(tmp_path / str(number))
    files = [tmp_path / str(number) / "record.json" for number in range(4)]
    with watched(files):
        Record({}).save(tmp_path / "0")
        Record({}, status="oom").save(tmp_path / "2")
        time.sleep(0.1)
        Record({}).save(tmp_path / "3")
    assert capsys.readouterr().err.splitlines()[-1].startswith("[INFO] 3 of 4 points, 1 not ok")
