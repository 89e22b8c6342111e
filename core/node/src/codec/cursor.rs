//! Read little-endian values from bytes that may be short.

/// The bytes end before a value does, or a count is above its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short(pub &'static str);

#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub fn take(&mut self, bytes: usize, what: &'static str) -> Result<&'a [u8], Short> {
        let (front, rest) = self.0.split_at_checked(bytes).ok_or(Short(what))?;
        self.0 = rest;
        Ok(front)
    }

    pub fn u16(&mut self, what: &'static str) -> Result<u16, Short> {
        let mut bytes = [0; 2];
        bytes.copy_from_slice(self.take(2, what)?);
        Ok(u16::from_le_bytes(bytes))
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, Short> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take(4, what)?);
        Ok(u32::from_le_bytes(bytes))
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, Short> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8, what)?);
        Ok(u64::from_le_bytes(bytes))
    }
}
