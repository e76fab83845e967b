//! Which part of a model is on which device.

use std::fmt;
use std::str::FromStr;

use tch::Device;

use crate::error::{CaptureError, Result};

/// The devices that a model is spread over, in the order of its forward pass: the embedding on the first, then the blocks,
/// neighbours together, and the output head on the last (a tied one with the embedding).
///
/// A device with a limit takes as many bytes of weights as it may, one without its share of what is left. Limits are for
/// weights alone: leave room for activations and the key-value cache.
///
/// As text: `cpu`, `cuda`, `cuda:1`, or several with a comma between, each with a limit if wanted:
/// `cuda:0=20GiB,cuda:1=20GiB,cpu`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMap {
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    device: Device,
    /// Bytes of weights.
    limit: Option<u64>,
}

impl From<Device> for DeviceMap {
    fn from(device: Device) -> Self {
        let limit = None;
        Self {
            places: vec![Place { device, limit }],
        }
    }
}

impl DeviceMap {
    /// The devices.
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        self.places.iter().map(|place| place.device)
    }

    /// A device by its place in the order.
    pub(crate) fn device(&self, place: usize) -> Device {
        self.places[place].device
    }

    /// The place of each of some parts, given by their bytes in the order of the forward pass.
    pub(crate) fn assign(&self, parts: &[u64]) -> Result<Vec<usize>> {
        let mut left: u64 = parts.iter().sum();
        let mut assigned = Vec::with_capacity(parts.len());
        let mut rest = parts.iter().peekable();
        for (index, place) in self.places.iter().enumerate() {
            let sharing = self.places[index..].iter();
            let sharing = sharing.filter(|place| place.limit.is_none()).count() as u64;
            let mut used = 0;
            while let Some(&&part) = rest.peek() {
                let fits = match place.limit {
                    Some(limit) => used + part <= limit,
                    // To the nearest part. The last to share takes what is left.
                    None => sharing == 1 || used + part / 2 <= left / sharing,
                };
                if !fits {
                    break;
                }
                used += part;
                assigned.push(index);
                rest.next();
            }
            left -= used;
        }
        if assigned.len() < parts.len() {
            let (part, bytes) = (assigned.len(), parts[assigned.len()]);
            return Err(CaptureError::OutOfMemoryBudget {
                placement: self.to_string(),
                needed: parts.iter().sum(),
                part: match part {
                    0 => "the embedding".to_owned(),
                    part => format!("part {part} of {}", parts.len() - 1),
                },
                bytes,
            });
        }
        Ok(assigned)
    }
}

impl FromStr for DeviceMap {
    type Err = CaptureError;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |place: &str| CaptureError::InvalidPlacement(place.to_owned());
        let place = |text: &str| {
            let (device, limit) = match text.split_once('=') {
                Some((device, limit)) => (device, Some(bytes(limit).ok_or_else(|| bad(text))?)),
                None => (text, None),
            };
            let device = match device.trim() {
                "cpu" => Device::Cpu,
                "cuda" => Device::Cuda(0),
                other => {
                    let index = other.strip_prefix("cuda:").and_then(|n| n.parse().ok());
                    Device::Cuda(index.ok_or_else(|| bad(text))?)
                }
            };
            Ok(Place { device, limit })
        };
        let places = text.split(',').map(place).collect::<Result<_>>()?;
        Ok(Self { places })
    }
}

/// `20GiB`, `500 MB`, `1000000`.
fn bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 6] = [
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("", 1),
    ];
    let text = text.trim();
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    number.trim().parse::<u64>().ok()?.checked_mul(*unit)
}

impl fmt::Display for DeviceMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, place) in self.places.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match place.device {
                Device::Cuda(index) => write!(f, "{comma}cuda:{index}")?,
                Device::Cpu => write!(f, "{comma}cpu")?,
                other => write!(f, "{comma}{other:?}")?,
            }
            if let Some(limit) = place.limit {
                write!(f, "={limit}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these parts come to each device.
    fn counts(placement: &str, parts: &[u64]) -> Vec<usize> {
        let placement: DeviceMap = placement.parse().unwrap();
        let assigned = placement.assign(parts).unwrap();
        assert_eq!(assigned.len(), parts.len());
        // Neighbours stay together, in the order of the devices.
        assert!(assigned.is_sorted(), "{assigned:?}");
        let count = |place| assigned.iter().filter(|found| **found == place).count();
        (0..placement.places.len()).map(count).collect()
    }

    #[test]
    fn devices_without_limits_share_alike() {
        assert_eq!(counts("cuda:3", &[5, 1, 1]), [3]);
        assert_eq!(counts("cuda:0,cuda:1", &[10; 8]), [4, 4]);
        assert_eq!(counts("cuda:0,cuda:1,cuda:2", &[10; 8]), [3, 3, 2]);
        // The embedding weighs as much as four blocks.
        assert_eq!(
            counts("cuda:0,cuda:1", &[40, 10, 10, 10, 10, 10, 10]),
            [2, 5]
        );
        // More devices than parts.
        assert_eq!(
            counts("cuda:0,cuda:1,cuda:2", &[10, 10])
                .iter()
                .sum::<usize>(),
            2
        );
    }

    #[test]
    fn limits_are_filled_in_order_and_the_rest_is_shared() {
        assert_eq!(counts("cuda:0=35,cpu", &[10; 8]), [3, 5]);
        assert_eq!(counts("cuda:0=35,cuda:1,cpu", &[10; 8]), [3, 3, 2]);
        assert_eq!(counts("cuda:0=5,cpu", &[10; 8]), [0, 8]);
        assert_eq!(counts("cuda:0=40,cuda:1=40", &[10; 8]), [4, 4]);
        let placement: DeviceMap = "cuda:0=40,cuda:1=39".parse().unwrap();
        let error = placement.assign(&[10; 8]).unwrap_err().to_string();
        assert!(
            error.contains("80 bytes") && error.contains("cuda:0=40,cuda:1=39"),
            "{error}"
        );
    }

    #[test]
    fn text_is_read_and_written() {
        for (text, expected) in [
            ("cuda", "cuda:0"),
            ("cuda:1=20GiB, cpu", "cuda:1=21474836480,cpu"),
            ("cpu=1 GB,cuda:0=5MiB", "cpu=1000000000,cuda:0=5242880"),
        ] {
            assert_eq!(text.parse::<DeviceMap>().unwrap().to_string(), expected);
        }
        for bad in [
            "",
            "tpu",
            "cuda:",
            "cuda:x",
            "cuda:-1",
            "cpu,",
            "cpu=",
            "cpu=2parsecs",
            "cpu=-1",
            "cpu=99999999999GiB",
        ] {
            let error = bad.parse::<DeviceMap>().unwrap_err().to_string();
            assert!(
                error.contains("is not cpu, cuda or cuda:N"),
                "{bad}: {error}"
            );
        }
    }
}
