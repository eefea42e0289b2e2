//! The protobuf wire format.
//!
//! Allocates nothing. A length is checked against the remaining bytes.

use super::Fault;

/// A value before its type is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl Wire<'_> {
    /// The number of its wire type, as used in errors.
    pub(super) fn kind(self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32 => 5,
        }
    }
}

/// Reads the fields of one message in order.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Returns the next field's number and value. Groups, which no Kubernetes message has, are skipped.
    pub(super) fn next_field(&mut self) -> Result<Option<(u32, Wire<'a>)>, Fault> {
        let mut open_groups = 0_usize;
        while !self.rest.is_empty() {
            let (number, kind) = self.tag()?;
            match kind {
                3 => open_groups += 1,
                4 => open_groups = open_groups.checked_sub(1).ok_or(Fault::EndGroup)?,
                _ => {
                    let value = self.value(kind)?;
                    if open_groups == 0 {
                        return Ok(Some((number, value)));
                    }
                }
            }
        }
        if open_groups == 0 {
            Ok(None)
        } else {
            Err(Fault::Eof)
        }
    }

    fn tag(&mut self) -> Result<(u32, u8), Fault> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3)
            .ok()
            .filter(|number| (1..1 << 29).contains(number))
            .ok_or(Fault::IllegalTag)?;
        Ok((number, (tag & 7) as u8))
    }

    fn value(&mut self, kind: u8) -> Result<Wire<'a>, Fault> {
        match kind {
            0 => self.varint().map(Wire::Varint),
            1 => {
                let bytes = self.take(8)?;
                Ok(Wire::Fixed64(u64::from_le_bytes(
                    bytes.try_into().expect("eight were taken"),
                )))
            }
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| Fault::Eof)?;
                self.take(length).map(Wire::Bytes)
            }
            5 => self.take(4).map(|_| Wire::Fixed32),
            other => Err(Fault::UnknownWireType(other)),
        }
    }

    pub(super) fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.take(1)? else {
                unreachable!("one byte was taken")
            };
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Fault::Overflow)
    }

    pub(super) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Fault::Eof)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, Fault> {
        let mut reader = Reader::new(bytes);
        let mut fields = Vec::new();
        while let Some(field) = reader.next_field()? {
            fields.push(field);
        }
        Ok(fields)
    }

    #[test]
    fn values_of_every_wire_type_are_read() {
        let bytes = [
            0x08, 0xac, 0x02, // 1: 300
            0x11, 1, 0, 0, 0, 0, 0, 0, 0, // 2: fixed 64
            0x1a, 2, b'h', b'i', // 3: bytes
            0x25, 0, 0, 0, 0, // 4: fixed 32
        ];
        let expected = [
            (1, Wire::Varint(300)),
            (2, Wire::Fixed64(1)),
            (3, Wire::Bytes(b"hi")),
            (4, Wire::Fixed32),
        ];
        assert_eq!(read(&bytes).expect("well formed"), expected);
    }

    #[test]
    fn groups_are_skipped() {
        let bytes = [0x0b, 0x08, 1, 0x13, 0x14, 0x0c, 0x10, 7];
        assert_eq!(read(&bytes).expect("well formed"), [(2, Wire::Varint(7))]);
    }

    #[test]
    fn invalid_bytes_are_rejected() {
        for (bytes, fault) in [
            (&[0x08][..], Fault::Eof),
            (&[0x0a, 5, b'x'], Fault::Eof),
            (
                &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                Fault::Eof,
            ),
            (&[0x0b], Fault::Eof),
            (&[0x0c], Fault::EndGroup),
            (&[0x00, 0], Fault::IllegalTag),
            (&[0x0e], Fault::UnknownWireType(6)),
            (&[0xff; 11], Fault::Overflow),
        ] {
            assert_eq!(read(bytes), Err(fault), "{bytes:?}");
        }
    }
}
