"""Tables escape their cells, and fold the rows of a large family."""

from flipout.experiments.report.tables import MANY, Column, PageRow, quantity_row, table

COLUMNS = [Column("number"), Column("run <1>", "ours", "run")]


def test_a_small_table_is_plain_and_escaped() -> None:
    rows = [quantity_row("conv1: slope & knee", ["<b>"]), quantity_row("accuracy", ["0.85"])]
    shown = str(table("numbers", "Numbers", COLUMNS, rows))
    assert shown.count('<tr role="row"') == 3
    assert "conv1: slope &amp; knee" in shown
    assert "&lt;b&gt;" in shown
    assert 'data-label="run &lt;1&gt;"' in shown
    assert '<a href="#run">' in shown
    assert "<details" not in shown


def test_a_large_family_folds_and_opens_if_one_is_broken() -> None:
    def family(broken: bool) -> str:
        rows = [PageRow(f"layer {i}: slope", ["-1"], "slope", "slope", holds=i > 1) for i in range(MANY - 1)]
        rows += [
            PageRow("layer 9: slope", ["0"], "slope", "slope", holds=False, broken=broken),
            PageRow("alone", ["1"]),
        ]
        return str(table("checks", "Checks", COLUMNS, rows))

    assert '<details class="family">' in family(False)
    assert f"{MANY - 3} of {MANY} hold" in family(False)
    assert '<details class="family" open>' in family(True)
    assert family(True).index("alone") < family(True).index("<details")


def test_a_wide_table_scrolls_in_a_box() -> None:
    assert 'class="scrolls"' in str(table("numbers wide", "Numbers", COLUMNS, [PageRow("a", ["1"])]))
    assert str(table("numbers", "Numbers", COLUMNS, [])) == ""
