"""A line for every mode: where the modes are, what each line is, and that it is one density of x for every u."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.density.line import fit_line
from scorefold.density.mode_lines import blank, fit_mode_lines, in_modes, places_of

RNG = np.random.default_rng(0)
U = np.concatenate([[2, 0] + [0.3, 0.05] * RNG.normal(size=(300, 2)), [-2, 1] + [0.05, 0.3] * RNG.normal(size=(200, 2))])
LABELS = (U[:, 0] < 0).astype(int)
PLACES = places_of(U, LABELS, [0, 1], wider=4.0)


def observed(u, rng):
    """The square of the first parameter tells the sides apart in no way; a line through both would be flat."""
    return np.float32(np.stack([u[:, 0] ** 2, u[:, 1]], axis=1) + 0.1 * rng.normal(size=u.shape))


def v_of(u):
    return np.asarray(jax.vmap(PLACES)(jnp.asarray(u, jnp.float32)))


def test_every_draw_is_in_its_own_mode_and_of_order_one_there():
    v = v_of(U)
    assert np.array_equal(v[:, :2].argmax(axis=1), LABELS)
    assert np.array_equal(v[:, :2].sum(axis=1), np.ones(len(U)))
    for mode in (0, 1):
        w = v[mode == LABELS, 2:]
        assert np.allclose(w.mean(axis=0), 0, atol=1e-5)
        assert np.allclose(np.cov(w, rowvar=False), np.eye(2) / 4, atol=1e-3)
    assert PLACES.fault() == ""


def test_a_mode_left_out_has_no_place():
    only = places_of(U, LABELS, [1], wider=4.0)
    assert np.allclose(only.centre[0], U[LABELS == 1].mean(axis=0), atol=1e-5)
    assert len(only.centre) == 1


def test_each_mode_has_the_line_of_its_own_cases():
    x, v = observed(U, np.random.default_rng(1)), v_of(U)
    lines = fit_mode_lines(x, v, 2, changing=False)
    for mode in (0, 1):
        own = mode == LABELS
        alone = fit_line(x[own], v[own, 2:])
        for i in np.flatnonzero(own)[:5]:
            at, place = jnp.asarray(x[i]), jnp.asarray(v[i])
            assert np.allclose(lines.residual(at, place), alone.residual(at, place[2:]), atol=1e-4)
            assert np.sum(lines.log_scales(at, place)) == pytest.approx(float(alone.log_det(at)), abs=1e-4)
    assert float(lines.log_det(at)) == 0.0
    assert lines.given == 4
    slope = 2 * 2 * 0.6  # of θ² at 2, times sds
    assert float(lines.lines.slope[0, 0, 0]) == pytest.approx(slope, rel=0.1)
    assert float(lines.lines.slope[1, 0, 0]) < 0


def test_one_line_that_is_given_every_mode_s_place_is_those_of_all_modes():
    x, v = observed(U, np.random.default_rng(1)), v_of(U)
    one, many = fit_line(x, in_modes(v, 2)), fit_mode_lines(x, v, 2, changing=False)
    given = in_modes(v, 2)
    by_one = given @ np.asarray(one.slope).T + np.asarray(one.offset)
    slope, offset = (np.asarray(part)[v[:, :2].argmax(axis=1)] for part in (many.lines.slope, many.lines.offset))
    assert np.allclose(by_one, np.einsum("cxd,cd->cx", slope, v[:, 2:]) + offset, atol=1e-3)


def test_a_blank_one_has_the_same_shapes():
    x, v = observed(U, np.random.default_rng(1)), v_of(U)
    for changing in (False, True):
        made = fit_mode_lines(x, v, 2, changing)
        like = jax.eval_shape(lambda changing=changing: blank(2, 2, 2, changing))
        assert jax.tree.map(lambda a: (a.shape, a.dtype), made) == jax.tree.map(lambda a: (a.shape, a.dtype), like)
