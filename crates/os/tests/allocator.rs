//! What a process keeps of large blocks that it has freed, as the kernel counts it. A program of its own, with one
//! test: other tests' memory would count, too.

/// Resident bytes of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * rustix::param::page_size()
}

/// As journals' groups do: they grow by doubling while smaller blocks come that stay, and are freed whole.
#[test]
fn large_blocks_that_are_freed_leave_nothing() {
    assert!(os::give_back_large_blocks());
    let before = resident();
    let mut stays = Vec::new();
    for _ in 0..4 {
        let mut groups = vec![Vec::new(); 4];
        for _ in 0..(12 << 20) / (64 << 10) {
            for group in &mut groups {
                group.extend_from_slice(&[1_u8; 64 << 10]);
                stays.push(vec![2_u8; 64]);
            }
        }
    }
    let stay: usize = stays.iter().map(|block| block.capacity() + 64).sum();
    let kept = resident().saturating_sub(before + stay);
    assert!(kept < 8 << 20, "{kept} bytes are kept of blocks that were freed");
}
