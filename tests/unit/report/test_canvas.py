from scorefold.report.canvas import figure_of


def test_a_notebook_gets_a_picture_of_a_figure_without_pyplot():
    figure = figure_of(2.0, 1.5)
    figure.subplots().plot([0.0, 1.0])
    assert figure._repr_png_().startswith(b"\x89PNG")
