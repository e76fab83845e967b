//! Accuracy against K, the method beside its control, as SVG.

use std::collections::BTreeMap;

use plotters::prelude::*;

use super::Column;
use crate::error::{ExperimentError, Result};
use crate::results::{Results, UNEDITED};

/// One line of a panel: its name, and in ascending K the value, low and high end of the 95 % interval.
type Series = (String, Vec<[f64; 4]>);

/// One panel: a metric of a task.
struct Panel {
    title: String,
    /// The unedited model: value, low, high.
    unedited: Option<[f64; 3]>,
    series: Vec<Series>,
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

/// A panel per metric, three in a line, with the legend in the first. Later repeats are rows of the table; the plot shows the
/// first. Without an edit there is nothing to draw.
///
/// # Errors
/// The drawing library fails.
pub fn render(results: &Results) -> Result<String> {
    let panels: Vec<Panel> = Column::all(results)
        .into_iter()
        .map(|column| panel(&column, results))
        .filter(|panel| !panel.series.is_empty())
        .collect();
    let mut text = String::new();
    if panels.is_empty() {
        return Ok(text);
    }
    let columns = panels.len().min(COLUMNS);
    let lines = panels.len().div_ceil(columns);
    let size = (PANEL.0 * columns as u32, PANEL.1 * lines as u32);
    let failed = |error: &dyn std::fmt::Display| {
        ExperimentError::Invalid(format!("cannot draw the plot: {error}"))
    };
    let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
    root.fill(&WHITE).map_err(|e| failed(&e))?;
    let areas = root.split_evenly((lines, columns));
    for (index, (area, panel)) in areas.iter().zip(&panels).enumerate() {
        draw_panel(area, panel, index == 0).map_err(|e| failed(&e))?;
    }
    root.present().map_err(|e| failed(&e))?;
    drop((areas, root));
    Ok(text)
}

fn panel(column: &Column, results: &Results) -> Panel {
    let unedited = results.rows.iter().find(|row| row.id == UNEDITED);
    let mut by_label: BTreeMap<String, Vec<[f64; 4]>> = BTreeMap::new();
    for row in results.rows.iter().filter(|row| row.repeat == Some(0)) {
        if let (Some(k), Some([value, low, high])) = (row.k, column.of(row)) {
            let points = by_label.entry(row.label.clone()).or_default();
            points.push([k, value, low, high]);
        }
    }
    for points in by_label.values_mut() {
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    }
    Panel {
        title: column.heading.clone(),
        unedited: unedited.and_then(|row| column.of(row)),
        series: by_label.into_iter().collect(),
    }
}

fn draw_panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    panel: &Panel,
    legend: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let all: Vec<&[f64; 4]> = panel.series.iter().flat_map(|(_, points)| points).collect();
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
    for ((label, points), colour) in panel.series.iter().zip(COLOURS.into_iter().cycle()) {
        let points = || points.iter().filter(|p| p[0] > 0.0);
        chart
            .draw_series(LineSeries::new(
                points().map(|p| (p[0], p[1])),
                colour.stroke_width(2),
            ))?
            .label(label)
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
