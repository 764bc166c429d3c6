//! A sample of the written keys, read once more at the end.

use crate::rng::Rng;

/// A reservoir (algorithm R, Vitter 1985): each that was offered is in it with the same probability.
pub struct Reservoir {
    kept: Vec<(usize, u64)>,
    size: usize,
    offered: u64,
}

impl Reservoir {
    /// Of at most `size`.
    pub fn new(size: usize) -> Reservoir {
        Reservoir { kept: Vec::new(), size, offered: 0 }
    }

    /// Offers an operation's place and a key.
    pub fn offer(&mut self, written: (usize, u64), rng: &mut Rng) {
        self.offered += 1;
        if self.kept.len() < self.size {
            self.kept.push(written);
            return;
        }
        let at = rng.below(self.offered) as usize;
        if at < self.size {
            self.kept[at] = written;
        }
    }

    /// What is in it, each once.
    pub fn take(&mut self) -> Vec<(usize, u64)> {
        let mut kept = std::mem::take(&mut self.kept);
        kept.sort_unstable();
        kept.dedup();
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_kept_as_often() {
        let mut rng = Rng::new(4);
        let mut hits = [0u32; 10];
        for _ in 0..10_000 {
            let mut reservoir = Reservoir::new(3);
            (0..10).for_each(|id| reservoir.offer((0, id), &mut rng));
            reservoir.take().iter().for_each(|(_, id)| hits[*id as usize] += 1);
        }
        assert!(hits.iter().all(|&hits| (2800..3200).contains(&hits)), "{hits:?}");
        let mut none = Reservoir::new(0);
        none.offer((0, 1), &mut rng);
        assert!(none.take().is_empty());
    }
}
