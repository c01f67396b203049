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
    {
      what: 'a commit that the repository lacks',
      files: {
        'Cargo.toml': manifest('uses', `[dependencies]\nreply = { git = "${reply.url}" }\n`),
        'Cargo.lock': lockOf(
          { name: 'reply', source: `git+${reply.url}#${'ab'.repeat(20)}` },
          { name: 'uses', deps: ['reply'] },
        ),
        ...main(''),
      },
      fetches: true,
      fails: /^source_unreachable: /,
    },
  ]
}
