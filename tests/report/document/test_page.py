"""The page of a privacy report: well-formed, for everybody, on a phone and on a desk."""

import html
import re
import shutil
import subprocess

import pytest
from report.page_checks import Page, contrast

import taut
from taut.report import privacy_report
from taut.report._document.html import DARK, LIGHT

pytest.importorskip("matplotlib")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
NEEDS_BROWSER = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser to look with: none of {', '.join(BROWSERS)} is installed"
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
]
WIDTHS = [390, 1280]

TEXT_ON = [
    ("ink", "paper"),
    ("ink", "panel"),
    ("ink", "warning-panel"),
    ("quiet", "paper"),
    ("quiet", "panel"),
    ("accent", "paper"),
    ("warning", "warning-panel"),
]


@pytest.fixture(scope="module")
def text():
    torch = pytest.importorskip("torch")
    from taut.training import GroupClip, Plan, TrainingResult

    assert torch
    plan = Plan(
        examples=3_000,
        batch_size=100,
        steps=40,
        noise_multiplier=1.0,
        delta=1e-5,
        clipping=GroupClip(bounds={"a_rather_long_name_of_a_layer": 1.0, "another_one": 0.5}),
    )
    result = TrainingResult(
        plan=plan,
        steps=40,
        counted_steps=40,
        stopped_at_budget=False,
        epsilon=plan.loss.epsilon_bounds(plan.delta),
        loss=plan.loss,
        is_secure=False,
    )
    return privacy_report(result, unit="patient").to_html()


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_page_is_well_formed_and_loads_nothing(text, page):
    assert page.faults == []
    assert text.startswith("<!DOCTYPE html>\n")
    assert page.headings.count(1) == 1
    assert "url(http" not in text
    assert "@import" not in text
    outside = re.sub(r'xmlns(:xlink)?="[^"]*"', "", text)
    assert "http:" not in outside
    assert "https:" not in outside


def test_checker_finds_faults():
    assert Page("<p><b>x</p></b>").faults
    assert Page('<p id="a"></p><p id="a"></p>').faults
    assert Page("<h1>a</h1><h3>b</h3>").faults
    assert Page('<img src="https://x.org/a.png">').faults
    assert Page('<a href="#nowhere">x</a>').faults
    assert not Page('<h1>a</h1><p id="b">c<br>d</p><a href="#b">e</a>').faults


def test_page_says_its_language_and_fits_screens(page):
    tags = dict(page.tags)
    assert tags["html"]["lang"] == "en"
    metas = {v.get("name"): v.get("content") for tag, v in page.tags if tag == "meta"}
    assert "width=device-width" in metas["viewport"]


def test_pictures_have_names_and_descriptions(page):
    pictures = [values for tag, values in page.tags if tag == "svg"]
    assert len(pictures) == 3
    for values in pictures:
        assert values["role"] == "img"
        title, description = values["aria-labelledby"].split()
        assert len(page.texts[title]) > 5
        assert len(page.texts[description]) > 60


def test_pictures_need_no_colour(text):
    pictures = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    colours = set(re.findall(r"(?:stroke|fill|color): ?(#[0-9a-fA-F]{3,6}|rgb[^;]*)", pictures))
    assert all(len({c[1:3], c[3:5], c[5:7]}) == 1 for c in colours)
    assert pictures.count("stroke-dasharray") >= 2


def test_tables_name_their_rows_and_columns(page):
    heads = [values for tag, values in page.tags if tag == "th"]
    assert heads
    assert {values["scope"] for values in heads} == {"row", "col"}
    counts = [tag for tag, _ in page.tags]
    assert counts.count("caption") == counts.count("table") > 8


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), TEXT_ON)
def test_contrast(palette, ink, ground, text):
    assert contrast(palette[ink], palette[ground]) >= 4.5
    assert f"--{ink}: {palette[ink]};" in text


def test_every_colour_of_text_is_tested(text):
    style = text[text.index("<style>") : text.index("</style>")]
    used = set(re.findall(r"(?<![-\w])color: var\(--([a-z-]+)\)", style))
    assert used == {ink for ink, _ in TEXT_ON}


def test_contrast_of_known_colours():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


def framed(text, width):
    """Return a page that shows `text` at a width, and then says what sticks out of it.

    Windows cannot be as narrow as a phone; frames can.
    """
    return f"""<!DOCTYPE html><body style="margin:0">
<iframe style="border:0;width:{width}px;height:9000px" srcdoc="{html.escape(text)}"></iframe>
<script>
document.querySelector("iframe").onload = (event) => {{
  const inside = event.target.contentDocument;
  const wide = [...inside.querySelectorAll(".wide, pre, svg, p, dl")]
    .filter((part) => part.scrollWidth > part.clientWidth + 1 && part.clientWidth > 0);
  document.body.dataset.width = inside.documentElement.scrollWidth;
  document.body.dataset.wide = wide.map((part) => part.className + part.textContent.slice(0, 40));
  document.body.dataset.height = inside.body.scrollHeight;
}};
</script></body>"""


def browse(tmp_path, text, width, *flags):
    path = tmp_path / "page.html"
    path.write_text(framed(text, width), encoding="utf-8")
    return subprocess.run(
        [
            BROWSER,
            *FLAGS,
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={max(width, 500)},9000",
            *flags,
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@NEEDS_BROWSER
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_sticks_out(tmp_path, text, width):
    seen = browse(tmp_path, text, width, "--dump-dom")
    assert "CONSOLE" not in seen.stderr
    body = re.search(r"<body[^>]*>", seen.stdout)[0]
    found = dict(re.findall(r'data-(\w+)="([^"]*)"', body))
    assert found["wide"] == ""
    assert int(found["width"]) == width
    assert int(found["height"]) > 2_000


@NEEDS_BROWSER
@pytest.mark.parametrize("width", WIDTHS)
def test_page_shows(tmp_path, text, width):
    image = tmp_path / "page.png"
    seen = browse(tmp_path, text, width, f"--screenshot={image}")
    assert "CONSOLE" not in seen.stderr
    from matplotlib.image import imread

    pixels = imread(image)
    assert pixels.shape[1] >= width
    ink = (pixels[..., :3].mean(axis=2) < 0.5).mean(axis=1)
    assert (ink[:2_000] > 0).mean() > 0.3


def test_a_loss_has_a_page_too():
    found = privacy_report(taut.pure(1.0), delta=0, description="A vote.").to_html()
    assert Page(found).faults == []
