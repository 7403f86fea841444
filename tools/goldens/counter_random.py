"""The counter-based draws of docs/formats/randomness.md in NumPy, for scripts that compare with darkroom's."""
import numpy as np

CROP = 6  # Purpose::kCrop
INIT = 7  # Purpose::kInit
SELECT = 8  # Purpose::kSelect


def hash_key(key: str) -> int:
    value = 0xCBF29CE484222325
    for byte in key.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def draws(seed: int, key: str, count: int, purpose: int = SELECT) -> np.ndarray:
    """Draws 0..count-1 of CounterRandom(seed, purpose, 0, key): 32 bits each."""
    blocks = (count + 3) // 4
    hashed = hash_key(key)
    mask = np.uint64(0xFFFFFFFF)
    words = [np.arange(blocks, dtype=np.uint64)]
    words += [np.full(blocks, value, np.uint64) for value in (purpose << 24, hashed & 0xFFFFFFFF, hashed >> 32)]
    key0, key1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        product0, product1 = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (product1 >> np.uint64(32)) ^ words[1] ^ np.uint64(key0),
            product1 & mask,
            (product0 >> np.uint64(32)) ^ words[3] ^ np.uint64(key1),
            product0 & mask,
        ]
        key0, key1 = (key0 + 0x9E3779B9) % 2**32, (key1 + 0xBB67AE85) % 2**32
    return np.stack(words, axis=1).reshape(-1)[:count].astype(np.uint32)
