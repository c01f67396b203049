// The Cargo project that benchmarks build. Pure.

import type { SourceFiles } from '../../rigs/build/sources.ts'

const modules = 1

/** Without dependencies; enough of collections and formatting to keep the compiler busy rather than the disk. */
export const project: SourceFiles = {
  'Cargo.toml': '[package]\nname = "work"\nversion = "0.1.0"\nedition = "2021"\n',
  'Cargo.lock': 'version = 4\n\n[[package]]\nname = "work"\nversion = "0.1.0"\n',
  'src/main.rs': [
    ...Array.from({ length: modules }, (_, i) => `mod m${i};`),
    'fn main() {',
    ...Array.from({ length: modules }, (_, i) => `    println!("{}", m${i}::work(${i + 3}));`),
    '}\n',
  ].join('\n'),
  ...Object.fromEntries(Array.from({ length: modules }, (_, i) => [`src/m${i}.rs`, moduleText(i)])),
}

function moduleText(i: number): string {
  return `use std::collections::{BTreeMap, HashMap};
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key${i} { name: String, at: u64 }
pub fn work(n: u64) -> String {
    let mut sorted: BTreeMap<Key${i}, Vec<u64>> = BTreeMap::new();
    let mut counts: HashMap<Key${i}, u64> = HashMap::new();
    for at in 0..n * ${i + 7} {
        let key = Key${i} { name: format!("{:04}", at % 17), at: at % 5 };
        sorted.entry(key.clone()).or_default().push(at * at);
        *counts.entry(key).or_insert(0) += 1;
    }
    let mut all: Vec<(Key${i}, u64)> = counts.into_iter().collect();
    all.sort_by(|a, b| b.cmp(a));
    format!("{:?} {:?}", sorted, all)
}
`
}
