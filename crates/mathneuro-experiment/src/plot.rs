//! Accuracy against K, the method beside its control, as SVG.

use std::path::Path;

use crate::error::{ExperimentError, Result};
use plotters::prelude::*;

/// One line of a panel: K, value, low and high end of the 95 % interval.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Points in ascending K.
    pub points: Vec<[f64; 4]>,
}

/// One panel: a metric of a task.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Its title.
    pub title: String,
    /// The unedited model: value, low, high.
    pub unedited: Option<[f64; 3]>,
    /// The edits.
    pub series: Vec<Series>,
}

const PANEL: (u32, u32) = (360, 300);
/// Panels side by side.
const COLUMNS: usize = 3;
const COLOURS: [RGBColor; 4] = [
    RGBColor(200, 60, 50),
    RGBColor(50, 100, 190),
    RGBColor(200, 130, 30),
    RGBColor(40, 140, 90),
];

/// Draws the panels in lines of three, with the legend in the first.
///
/// # Errors
/// The file cannot be written.
pub fn draw(path: &Path, panels: &[Panel]) -> Result<()> {
    let drawable: Vec<&Panel> = panels
        .iter()
        .filter(|p| p.series.iter().any(|s| !s.points.is_empty()))
        .collect();
    if drawable.is_empty() {
        return Ok(());
    }
    let columns = drawable.len().min(COLUMNS);
    let lines = drawable.len().div_ceil(columns);
    let size = (PANEL.0 * columns as u32, PANEL.1 * lines as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| {
        ExperimentError::Invalid(format!("cannot draw {}: {error}", path.display()))
    };
    root.fill(&WHITE).map_err(|e| failed(&e))?;
    let areas = root.split_evenly((lines, columns));
    for (index, (area, panel)) in areas.iter().zip(drawable).enumerate() {
        draw_panel(area, panel, index == 0).map_err(|e| failed(&e))?;
    }
    root.present().map_err(|e| failed(&e))
}

fn draw_panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    panel: &Panel,
    legend: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let all: Vec<&[f64; 4]> = panel.series.iter().flat_map(|s| &s.points).collect();
    let ks = || all.iter().map(|p| p[0]).filter(|k| *k > 0.0);
    let (low, high) = (ks().fold(f64::MAX, f64::min), ks().fold(0.0, f64::max));
    let top = all
        .iter()
        .map(|p| p[3])
        .chain(panel.unedited.map(|u| u[2]))
        .fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(34)
        .y_label_area_size(40)
        .build_cartesian_2d(
            (low / 1.6..high * 1.6).log_scale(),
            0.0..top.max(1.0) * 1.05,
        )?;
    chart
        .configure_mesh()
        .x_desc("K")
        .light_line_style(TRANSPARENT)
        .draw()?;
    if let Some([value, low_end, high_end]) = panel.unedited {
        let band = [(low / 1.6, low_end), (high * 1.6, high_end)];
        chart.draw_series([Rectangle::new(band, BLACK.mix(0.07).filled())])?;
        let line = LineSeries::new([(low / 1.6, value), (high * 1.6, value)], BLACK.mix(0.6));
        chart
            .draw_series(line)?
            .label("unedited")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 14, y)], BLACK));
    }
    for (series, colour) in panel.series.iter().zip(COLOURS.into_iter().cycle()) {
        let points = || series.points.iter().filter(|p| p[0] > 0.0);
        chart
            .draw_series(LineSeries::new(
                points().map(|p| (p[0], p[1])),
                colour.stroke_width(2),
            ))?
            .label(&series.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
        chart.draw_series(
            points().map(|p| ErrorBar::new_vertical(p[0], p[2], p[1], p[3], colour.filled(), 5)),
        )?;
    }
    if legend {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleRight)
            .background_style(WHITE.mix(0.8))
            .draw()?;
    }
    Ok(())
}
