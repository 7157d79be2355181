//! Lines over time, as an SVG file.

use std::fmt::Write as _;
use std::path::PathBuf;

pub struct Line {
    pub name: &'static str,
    pub colour: &'static str,
    /// A value a second, 0 to 1.
    pub values: Vec<f64>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 30.0;

/// Writes the chart beside the build's other results and says where.
pub fn write(file: &str, title: &str, lines: &[Line]) -> std::io::Result<PathBuf> {
    let seconds = lines.iter().map(|l| l.values.len()).max().unwrap_or(1).max(2);
    let x = |second: usize| LEFT + second as f64 / (seconds - 1) as f64 * WIDTH;
    let y = |value: f64| TOP + (1.0 - value) * HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"18\">{title}</text>\n",
        LEFT + WIDTH + 130.0,
        TOP + HEIGHT + 50.0
    );
    for tenth in (0..=10).step_by(2) {
        let at = y(f64::from(tenth) / 10.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at}h{WIDTH}\" stroke=\"#ddd\"/><text x=\"8\" y=\"{}\">{}%</text>",
            at + 4.0,
            tenth * 10
        );
    }
    for second in (0..seconds).step_by(10) {
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{second} s</text>", x(second) - 8.0, TOP + HEIGHT + 20.0);
    }
    for (n, line) in lines.iter().enumerate() {
        let points: Vec<String> =
            line.values.iter().enumerate().map(|(s, v)| format!("{:.1},{:.1}", x(s), y(*v))).collect();
        let (points, colour) = (points.join(" "), line.colour);
        let _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
        let (left, at) = (LEFT + WIDTH + 10.0, TOP + 20.0 * (n + 1) as f64);
        let _ = writeln!(svg, "<text x=\"{left}\" y=\"{at}\" fill=\"{colour}\">{}</text>", line.name);
    }
    svg.push_str("</svg>\n");
    let dir = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("../../target"), PathBuf::from);
    let dir = dir.join("bench");
    std::fs::create_dir_all(&dir)?;
    let path = dir.join(file);
    std::fs::write(&path, svg)?;
    Ok(path)
}
