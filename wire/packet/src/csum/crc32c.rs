//! CRC32c (Castagnoli) as SCTP uses it, eight bytes a step by table.

const POLY: u32 = 0x82f6_3b78;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut t = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ POLY } else { crc >> 1 };
            bit += 1;
        }
        t[0][i] = crc;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            t[k][i] = t[k - 1][i] >> 8 ^ t[0][(t[k - 1][i] & 0xff) as usize];
            i += 1;
        }
        k += 1;
    }
    t
}

/// The CRC32c of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    !crc32c_add(!0, data)
}

/// Goes on with a running CRC, which begins as all ones and is complemented at the end.
pub(crate) fn crc32c_add(mut crc: u32, data: &[u8]) -> u32 {
    let mut blocks = data.chunks_exact(8);
    for b in &mut blocks {
        let low = crc ^ u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let l = low.to_le_bytes();
        crc = TABLES[7][usize::from(l[0])]
            ^ TABLES[6][usize::from(l[1])]
            ^ TABLES[5][usize::from(l[2])]
            ^ TABLES[4][usize::from(l[3])]
            ^ TABLES[3][usize::from(b[4])]
            ^ TABLES[2][usize::from(b[5])]
            ^ TABLES[1][usize::from(b[6])]
            ^ TABLES[0][usize::from(b[7])];
    }
    for byte in blocks.remainder() {
        crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    crc
}
