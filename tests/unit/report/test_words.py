"""Words that pages and tables share."""

from scorefold import tasks
from scorefold.report.words import TASK_LABELS


def test_every_task_has_a_label_of_its_own():
    assert set(TASK_LABELS) == set(tasks.names())
    assert len(set(TASK_LABELS.values())) == len(TASK_LABELS)
