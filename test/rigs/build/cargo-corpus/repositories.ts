// Rows: dependencies from git repositories. Effects: repositories of the fetch servers.
import { replyFiles, type SourceFiles } from '../../../../scripts/rigs/build/sources.ts'
import { type FetchServers, makeRepository } from '../fetch-servers.ts'
import { answerManifest, answerSource, lockOf, main, manifest, type Row, usesAnswer } from './parts.ts'

/** Dependencies from repositories, which exist once the servers run. */
export function repositoryRows(servers: FetchServers): readonly Row[] {
  const reply = makeRepository(servers, 'reply', replyFiles)
  const many = makeRepository(servers, 'many', {
    'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["deep/reply"]\n',
    ...Object.fromEntries(Object.entries(replyFiles).map(([path, text]) => [`deep/reply/${path}`, text])),
  })
  const pair = makeRepository(servers, 'pair', {
    'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["inner", "reply"]\n',
    'inner/Cargo.toml': manifest('inner'),
    'inner/src/lib.rs': 'pub fn value() -> u32 { 2 }\n',
    'reply/Cargo.toml': manifest('reply', '[dependencies]\ninner = { path = "../inner" }\n'),
    'reply/src/lib.rs': 'pub fn reply() -> u32 { inner::value() }\n',
  })
  const row = (what: string, { url, commit }: typeof reply, [manifestWords, lockWords]: [string, string]): Row => ({
    what,
    files: {
      'Cargo.toml': manifest('uses', `[dependencies]\nreply = { git = "${url}"${manifestWords} }\n`),
      'Cargo.lock': lockOf(
        { name: 'reply', source: `git+${url}${lockWords}#${commit}` },
        { name: 'uses', deps: ['reply'] },
      ),
      ...main('println!("{}", reply::reply());'),
    },
    fetches: true,
    ...{ artifacts: ['uses'], packages: ['reply 0.1.0 fetched', 'uses 0.1.0 path'] },
  })
  const patched: SourceFiles = {
    ...usesAnswer,
    'Cargo.toml': `${usesAnswer['Cargo.toml']}[patch.crates-io]\nanswer = { git = "https://git.strongroom.test/own-answer.git" }\n`,
  }
  const own = makeRepository(servers, 'own-answer', { 'Cargo.toml': answerManifest, 'src/lib.rs': answerSource })
  return [
    row('a branch of a repository', reply, [', branch = "main"', '?branch=main']),
    row('a tag of a repository', reply, [', tag = "v1"', '?tag=v1']),
    row('a commit of a repository', reply, [`, rev = "${reply.commit}"`, `?rev=${reply.commit}`]),
    row('the default branch of a repository', reply, ['', '']),
    row('a package below the root of a repository', many, ['', '']),
    {
      what: 'two packages of a repository, of which one needs the other by its path',
      files: {
        'Cargo.toml': manifest('uses', `[dependencies]\nreply = { git = "${pair.url}" }\n`),
        'Cargo.lock': lockOf(
          { name: 'inner', source: `git+${pair.url}#${pair.commit}` },
          { name: 'reply', source: `git+${pair.url}#${pair.commit}`, deps: ['inner'] },
          { name: 'uses', deps: ['reply'] },
        ),
        ...main('println!("{}", reply::reply());'),
      },
      fetches: true,
      ...{ artifacts: ['uses'], packages: ['inner 0.1.0 fetched', 'reply 0.1.0 fetched', 'uses 0.1.0 path'] },
    },
    {
      what: 'a repository that `cargo vendor` put into the source',
      files: {
        'Cargo.toml': manifest('uses', `[dependencies]\nreply = { git = "${reply.url}", branch = "main" }\n`),
        'Cargo.lock': lockOf(
          { name: 'reply', source: `git+${reply.url}?branch=main#${reply.commit}` },
          { name: 'uses', deps: ['reply'] },
        ),
        '.cargo/config.toml': `[source."git+${reply.url}?branch=main"]\ngit = "${reply.url}"\nbranch = "main"\nreplace-with = "vendored-sources"\n[source.vendored-sources]\ndirectory = "vendor"\n`,
        ...Object.fromEntries(Object.entries(replyFiles).map(([path, text]) => [`vendor/reply/${path}`, text])),
        'vendor/reply/.cargo-checksum.json': '{"files":{},"package":null}',
        ...main('println!("{}", reply::reply());'),
      },
      ...{ artifacts: ['uses'], packages: ['reply 0.1.0 vendored', 'uses 0.1.0 path'] },
    },
    {
      what: '[patch] of a repository with a directory',
      files: {
        'Cargo.toml': manifest(
          'uses',
          `[dependencies]\nreply = { git = "${reply.url}" }\n[patch."${reply.url}"]\nreply = { path = "own" }\n`,
        ),
        'Cargo.lock': lockOf({ name: 'reply' }, { name: 'uses', deps: ['reply'] }),
        ...Object.fromEntries(Object.entries(replyFiles).map(([path, text]) => [`own/${path}`, text])),
        ...main('println!("{}", reply::reply());'),
      },
      ...{ artifacts: ['uses'], packages: ['reply 0.1.0 patched', 'uses 0.1.0 path'] },
    },
    {
      what: '[patch] with a repository',
      files: {
        ...patched,
        'Cargo.lock': lockOf(
          { name: 'answer', source: `git+${own.url}#${own.commit}` },
          { name: 'uses', deps: ['answer'] },
        ),
      },
      fetches: true,
      ...{ artifacts: ['uses'], packages: ['answer 0.1.0 patched', 'uses 0.1.0 path'] },
    },
    ...(
      [
        ['a commit that the repository lacks', '', '', gone],
        ['a rev that the repository lacks', `, rev = "${gone}"`, `?rev=${gone}`, gone],
        ['a branch that the repository lacks', ', branch = "none"', '?branch=none', gone],
        ['a tag that the repository lacks', ', tag = "v9"', '?tag=v9', gone],
      ] as const
    ).map(
      ([what, manifestWords, lockWords, commit]): Row => ({
        what,
        files: {
          'Cargo.toml': manifest('uses', `[dependencies]\nreply = { git = "${reply.url}"${manifestWords} }\n`),
          'Cargo.lock': lockOf(
            { name: 'reply', source: `git+${reply.url}${lockWords}#${commit}` },
            { name: 'uses', deps: ['reply'] },
          ),
          ...main(''),
        },
        fetches: true,
        fails:
          /^source_unreachable: a repository lacks a branch, tag or commit of Cargo\.lock; run `cargo update -p NAME`/,
      }),
    ),
    ...['none', 'checksum-utils'].map(
      (name): Row => ({
        what: `a repository that does not exist: ${name}`,
        files: {
          'Cargo.toml': manifest(
            'uses',
            `[dependencies]\nreply = { git = "https://git.strongroom.test/${name}.git" }\n`,
          ),
          'Cargo.lock': lockOf(
            { name: 'reply', source: `git+https://git.strongroom.test/${name}.git#${gone}` },
            { name: 'uses', deps: ['reply'] },
          ),
          ...main(''),
        },
        fetches: true,
        fails:
          /^source_unreachable: cargo fetch: exit code \d+; vendor the packages, or ask the operator which hosts are allowed/,
      }),
    ),
  ]
}

const gone = 'ab'.repeat(20)
