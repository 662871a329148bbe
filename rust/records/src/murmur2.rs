//! The hash of Java's default partitioner: murmur2 with Kafka's seed.

const SEED: u32 = 0x9747_b28c;
const MIX: u32 = 0x5bd1_e995;
const SHIFT: u32 = 24;

pub fn murmur2(data: &[u8]) -> i32 {
    let mut hash = SEED ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        k = k.wrapping_mul(MIX);
        k ^= k >> SHIFT;
        hash = hash.wrapping_mul(MIX) ^ k.wrapping_mul(MIX);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        for (index, byte) in tail.iter().enumerate() {
            hash ^= (*byte as u32) << (8 * index);
        }
        hash = hash.wrapping_mul(MIX);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MIX);
    (hash ^ (hash >> 15)) as i32
}
