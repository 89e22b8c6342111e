//! What a process has used so far, read from `/proc`: the server's CPU, faults, calls and memory.

use std::io;

/// Counters of one process since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub user_ns: u64,
    pub system_ns: u64,
    pub faults_minor: u64,
    pub faults_major: u64,
    /// `read`- and `write`-like calls that moved bytes (sockets included).
    pub read_calls: u64,
    pub write_calls: u64,
    pub storage_write_bytes: u64,
    /// Largest resident set so far; not a difference.
    pub resident_bytes_max: u64,
}

/// Nanoseconds in one tick of `/proc/PID/stat`: the kernel's `USER_HZ` is 100 on every supported machine.
const TICK_NS: u64 = 10_000_000;

fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|value| value.parse().ok())
        .unwrap_or(0)
}

/// Read the counters of `pid`.
///
/// # Errors
/// The process is gone or not ours.
pub fn usage(pid: u32) -> io::Result<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the program's name in parentheses and may hold blanks; field 3 comes after the last ')'.
    let after_name = stat.rsplit_once(')').ok_or_else(|| io::Error::other("malformed stat"))?.1;
    let numbers: Vec<u64> = after_name.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    let at = |index: usize| numbers.get(index - 3).copied().unwrap_or(0);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let calls = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    Ok(Usage {
        user_ns: at(14) * TICK_NS,
        system_ns: at(15) * TICK_NS,
        faults_minor: at(10),
        faults_major: at(12),
        read_calls: field(&calls, "syscr:"),
        write_calls: field(&calls, "syscw:"),
        storage_write_bytes: field(&calls, "write_bytes:"),
        resident_bytes_max: field(&status, "VmHWM:") * 1024,
    })
}

impl Usage {
    /// What was used since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            user_ns: self.user_ns - before.user_ns,
            system_ns: self.system_ns - before.system_ns,
            faults_minor: self.faults_minor - before.faults_minor,
            faults_major: self.faults_major - before.faults_major,
            read_calls: self.read_calls - before.read_calls,
            write_calls: self.write_calls - before.write_calls,
            storage_write_bytes: self.storage_write_bytes - before.storage_write_bytes,
            resident_bytes_max: self.resident_bytes_max,
        }
    }

    /// As a JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        format!(
            concat!(
                "{{\"user_ns\": {}, \"system_ns\": {}, \"faults_minor\": {}, \"faults_major\": {}, ",
                "\"read_calls\": {}, \"write_calls\": {}, \"storage_write_bytes\": {}, \"resident_bytes_max\": {}}}"
            ),
            self.user_ns,
            self.system_ns,
            self.faults_minor,
            self.faults_major,
            self.read_calls,
            self.write_calls,
            self.storage_write_bytes,
            self.resident_bytes_max
        )
    }
}
