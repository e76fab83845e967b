//! Dates of the calendar, as `strftime` writes them.

/// Days since 1970 of a date (Hinnant's algorithm).
pub fn days_of(year: i64, month: u32, day: u32) -> i64 {
    let year = year.clamp(0, 9999) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let shifted = (i64::from(month.clamp(1, 12)) + 9) % 12;
    let of_year = (153 * shifted + 2) / 5 + i64::from(day.clamp(1, 31)) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of days since 1970.
fn date_of(days: i64) -> (i64, usize, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month as usize, of_year - (153 * shifted + 2) / 5 + 1)
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// The directives of `strftime` that templates use; another one stays as it is.
pub fn strftime(format: &str, seconds: i64) -> String {
    let (days, clock) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date_of(days);
    let month_name = MONTHS[(month - 1).min(11)];
    let weekday = WEEKDAYS[days.rem_euclid(7) as usize];
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('d') => text.push_str(&format!("{day:02}")),
            Some('e') => text.push_str(&format!("{day:2}")),
            Some('m') => text.push_str(&format!("{month:02}")),
            Some('b' | 'h') => text.push_str(&month_name[..3]),
            Some('B') => text.push_str(month_name),
            Some('Y') => text.push_str(&year.to_string()),
            Some('y') => text.push_str(&format!("{:02}", year % 100)),
            Some('a') => text.push_str(&weekday[..3]),
            Some('A') => text.push_str(weekday),
            Some('j') => text.push_str(&format!("{:03}", days - days_of(year, 1, 1) + 1)),
            Some('H') => text.push_str(&format!("{:02}", clock / 3600)),
            Some('M') => text.push_str(&format!("{:02}", clock / 60 % 60)),
            Some('S') => text.push_str(&format!("{:02}", clock % 60)),
            Some('F') => text.push_str(&format!("{year}-{month:02}-{day:02}")),
            Some('%') => text.push('%'),
            Some(other) => text.extend(['%', other]),
            None => text.push('%'),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_the_calendar() {
        for (seconds, expected) in [
            (0, "Thu 01 January 1970 00:00:00"),
            (951_782_399, "Mon 28 February 2000 23:59:59"),
            (951_782_400, "Tue 29 February 2000 00:00:00"),
            (1_767_225_599, "Wed 31 December 2025 23:59:59"),
        ] {
            assert_eq!(strftime("%a %d %B %Y %H:%M:%S", seconds), expected);
            let (year, month, day) = date_of(seconds.div_euclid(86_400));
            assert_eq!(
                days_of(year, month as u32, day as u32),
                seconds.div_euclid(86_400)
            );
        }
        assert_eq!(strftime("%y-%m %% %q%", 0), "70-01 % %q%");
    }
}
