// State that the gateway's VM keeps between two requests, as its source creates it, and the register of it in
// src/KEPT_STATE.md. Pure.
//
// A site is a place in the source that can still hold something after the call that put it there:
// - a field of a class, unless it is readonly and its value cannot change inside either;
// - a `let` of a module, and a constant of a module whose content can change;
// - a `let`, a parameter that is set again, or a constant whose content can change, which a function uses that
//   outlives the call around it: one that is returned, passed on, or kept as a property;
// - such a variable of a generator, or one that an endless loop uses and that is declared outside the loop;
// - a property that is set on a module's variable or a global, such as `keep.last = text`;
// - a call that writes a file or opens a database.
// The rules look at names and at no order of statements. They cannot see a service of another package that
// keeps things, and what a function does to a parameter whose type is not that of a container.

import ts from '@typescript/typescript6'
import { type Binding, bind, isFunction } from './kept/bindings.ts'
import {
  all,
  calleeOf,
  functionAround,
  functionName,
  hasModifier,
  isAssigned,
  isAssignment,
  isMade,
  isProperty,
  isSet,
  isThis,
  outerOf,
  thisProperty,
  words,
} from './kept/syntax.ts'
import { type Classes, containers, isChange, isFresh, isKeptValue, isMutable, unwrapped } from './kept/values.ts'
import type { Tree } from './tree.ts'

export type Site = {
  readonly path: string
  /** `Class.field`, `function.variable` or `variable`. */
  readonly name: string
}

/** Calls that keep something in a file or a database. */
const writers = words('Database Bun.write writeFileSync writeFileAtomic appendFileSync createWriteStream')

/** Sites of these files. Each use of a container that `src/base` defines is a site, too: its content is the user's. */
export function findKeptState(tree: Tree): readonly Site[] {
  const files = [...tree].map(([path, text]) => {
    const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true)
    return { source, bindings: bind(source) }
  })
  const classes = files.flatMap(({ source }) => all(source, ts.isClassLike))
  const declared = new Set(classes.flatMap(({ name }) => name?.text ?? []))
  const factories = new Set(files.flatMap(({ source }) => factoriesOf(source)))
  const stateful = statefulClasses(classes, { declared, factories })
  const own = files.flatMap(({ source, bindings }) => sitesOf(source, bindings, { declared, stateful, factories }))
  const base = files.filter(({ source }) => source.fileName.startsWith('src/base/'))
  const named = new Set(base.flatMap(({ bindings }) => bindings.filter(isOfModule).map(({ name }) => name)))
  const ofBase = own.flatMap(({ path, name }) => (path.startsWith('src/base/') ? (name.split('.')[0] ?? '') : []))
  const uses = files.flatMap(({ source }) => usesOf(source, new Set(ofBase.filter(name => named.has(name)))))
  const byKey = new Map([...own, ...uses].map(site => [`${site.path} ${site.name}`, site]))
  return [...byKey.values()]
}

const isOfModule = ({ scope }: Binding) => ts.isSourceFile(scope)

function factoriesOf(file: ts.SourceFile): string[] {
  const returned = [
    ...all(file, ts.isReturnStatement).flatMap(({ expression }) => expression ?? []),
    ...all(file, ts.isArrowFunction).flatMap(({ body }) => (ts.isBlock(body) ? [] : body)),
  ]
  return returned.flatMap(value => {
    const made = unwrapped(value)
    const isNew = ts.isNewExpression(made) && containers.has(calleeOf(made)) && (made.arguments?.length ?? 0) === 0
    return isNew ? (functionName(made) ?? []) : []
  })
}

/** Names of the classes with a field that is a site, or whose parent has one, until no more are found. */
function statefulClasses(classes: readonly ts.ClassLikeDeclaration[], others: Omit<Classes, 'stateful'>) {
  const stateful = new Set<string>()
  for (let before = -1; before !== stateful.size; ) {
    before = stateful.size
    for (const given of classes) {
      const parents = (given.heritageClauses ?? []).flatMap(({ types }) => types.map(type => type.expression.getText()))
      const isStateful =
        parents.some(parent => stateful.has(parent) || containers.has(parent)) ||
        keptFields(given, { ...others, stateful }).length > 0
      if (isStateful && given.name !== undefined) stateful.add(given.name.text)
    }
  }
  return stateful
}

function sitesOf(file: ts.SourceFile, bindings: readonly Binding[], classes: Classes): Site[] {
  const site = (...names: readonly (string | null)[]): Site => ({
    path: file.fileName,
    name: names.filter(name => name !== null).join('.'),
  })
  const fields = all(file, ts.isClassLike).flatMap(given =>
    keptFields(given, classes).map(name => site(given.name?.text ?? functionName(given), name)),
  )
  const variables = bindings
    .filter(binding => isKeptVariable(binding, classes))
    .map(binding => site(functionAround(binding.node) === null ? null : functionName(binding.scope), binding.name))
  const properties = changedNames(file, bindings).map(name => site(name))
  const written = all(file, isMade)
    .filter(made => writers.has(calleeOf(made)))
    .map(made => site(functionName(made), calleeOf(made)))
  const ofThis = changedOfThis(file).map(([owner, name]) => site(functionName(owner), name))
  const given = all(file, isMade)
    .filter(
      made => functionAround(made) === null && isMade(made.parent) && isFresh(made, classes) && !made.arguments?.length,
    )
    .map(made => site(holderOf(made)))
  return [...fields, ...variables, ...properties, ...written, ...ofThis, ...given]
}

/** Names of the fields that can keep something: declared, of the constructor's parameters, or set without either. */
function keptFields(given: ts.ClassLikeDeclaration, classes: Classes): readonly string[] {
  const declared = given.members.filter(ts.isPropertyDeclaration)
  const builders = given.members.filter(ts.isConstructorDeclaration)
  const ofParameters = builders.flatMap(({ parameters }) => parameters.filter(isParameterProperty))
  const set = all(given, ts.isBinaryExpression).filter(isAssignment)
  const changed = all(given, isThis).flatMap(node => {
    const { parent } = outerOf(node)
    const isOutside = !ts.isConstructorDeclaration(functionAround(node, true) ?? node)
    return ts.isPropertyAccessExpression(parent) && isSet(parent) && isOutside ? [parent.name.text] : []
  })
  const kept = [...declared, ...ofParameters].filter(field => {
    if (hasModifier(field, ts.SyntaxKind.DeclareKeyword) || hasModifier(field, ts.SyntaxKind.AbstractKeyword))
      return false
    if (!hasModifier(field, ts.SyntaxKind.ReadonlyKeyword)) return true
    const name = field.name.getText()
    const values = [
      ...(field.initializer === undefined ? [] : [field.initializer]),
      ...set.filter(({ left }) => thisProperty(left) === name).map(({ right }) => right),
    ]
    const uses = all(given, ts.isPropertyAccessExpression).filter(node => thisProperty(node) === name)
    return isKeptValue({ type: field.type, values, uses, isField: true }, classes)
  })
  return [...new Set([...kept.map(field => field.name.getText()), ...changed])]
}

/** `function.x` for `this.x = text` in a function that is in no class. */
function changedOfThis(file: ts.SourceFile): readonly (readonly [ts.Node, string])[] {
  return all(file, isThis).flatMap(node => {
    const { parent } = outerOf(node)
    const owner = functionAround(node, true)
    const isInClass = owner !== null && ts.isClassLike(owner.parent)
    return ts.isPropertyAccessExpression(parent) && isChange(outerOf(node), true) && owner !== null && !isInClass
      ? [[owner, parent.name.text]]
      : []
  })
}

function isParameterProperty(node: ts.ParameterDeclaration): boolean {
  return (ts.getModifiers(node) ?? []).some(({ kind }) => kind !== ts.SyntaxKind.OverrideKeyword)
}

function isKeptVariable({ node, kind, uses }: Binding, classes: Classes): boolean {
  if (kind === 'other') return false
  const isModule = functionAround(node) === null
  const owner = functionAround(node)
  if (owner !== null && !uses.some(use => isCapturedBeyond(use, owner) || isInEndless(use, node, owner))) return false
  if (kind === 'let') return isModule || owner !== null
  if (kind === 'parameter' && uses.some(isSet)) return true
  const values = [node.initializer ?? [], literalOf(node)].flat()
  const type = ts.isBindingElement(node) ? undefined : node.type
  if (kind === 'parameter' && values.length === 0) return uses.some(use => isChange(use, isMutable(type)))
  return isKeptValue({ type, values, uses, isField: false }, classes)
}

/** The literal that a pattern takes apart. */
function literalOf(node: ts.Node): readonly ts.Expression[] {
  if (ts.isBindingElement(node) || ts.isBindingName(node)) return literalOf(node.parent)
  const value = ts.isVariableDeclaration(node) ? node.initializer : undefined
  const isLiteral = value !== undefined && (ts.isArrayLiteralExpression(value) || ts.isObjectLiteralExpression(value))
  return isLiteral ? [value] : []
}

/** `keep` for `keep.last = text` where `keep` is a function, class or import of the module, or a global. */
function changedNames(file: ts.SourceFile, bindings: readonly Binding[]): readonly string[] {
  const bound = new Set<ts.Node>(bindings.flatMap(({ uses }) => uses))
  const ofModule = bindings.filter(({ kind, scope }) => kind === 'other' && scope === file).flatMap(({ uses }) => uses)
  const globals = all(file, ts.isIdentifier).filter(at => !bound.has(at) && (isRoot(at) || isAssigned(at)))
  return [...ofModule, ...globals].filter(use => isChange(use, false)).map(({ text }) => text)
}

/** The `x` of `x.a` and `x[0]`. */
const isRoot = (node: ts.Identifier) =>
  (ts.isPropertyAccessExpression(node.parent) || ts.isElementAccessExpression(node.parent)) &&
  node.parent.expression === node

/** A function that outlives the call of the owner lies between the use and the owner. */
function isCapturedBeyond(use: ts.Node, owner: ts.Node): boolean {
  for (let at = use.parent; at !== owner && at !== undefined; at = at.parent)
    if (isFunction(at) && outlives(at, owner, new Set())) return true
  return false
}

/** The use is in a generator, or in a loop without an end that began after the declaration. */
function isInEndless(use: ts.Node, declaration: ts.Node, owner: ts.Node): boolean {
  if ((owner as ts.FunctionLikeDeclaration).asteriskToken !== undefined) return true
  for (let at = use.parent; at !== owner && at !== undefined; at = at.parent) {
    const isWithin = declaration.pos >= at.pos && declaration.end <= at.end
    if (isEndless(at) && !isWithin) return true
  }
  return false
}

function isEndless(node: ts.Node): boolean {
  if (ts.isForOfStatement(node)) return node.awaitModifier !== undefined
  if (ts.isForStatement(node)) return node.condition === undefined
  const isWhile = ts.isWhileStatement(node) || ts.isDoStatement(node)
  return isWhile && (node.expression.kind === ts.SyntaxKind.TrueKeyword || all(node, ts.isAwaitExpression).length > 0)
}

/** Every function but one that the owner only calls, or gives to a call that it ends with, such as `map`. */
function outlives(node: ts.Node, owner: ts.Node, seen: Set<ts.Node>): boolean {
  if (seen.has(node)) return false
  seen.add(node)
  const { parent } = node
  if (ts.isParenthesizedExpression(parent)) return !(ts.isCallExpression(parent.parent) && !isAsync(node))
  if (ts.isCallExpression(parent)) return !endsWithCall(parent)
  const isNamed = ts.isFunctionDeclaration(node) || (ts.isVariableDeclaration(parent) && parent.initializer === node)
  const name = ts.isFunctionDeclaration(node) ? node.name : ts.isVariableDeclaration(parent) ? parent.name : undefined
  if (!isNamed || name === undefined || !ts.isIdentifier(name)) return true
  const uses = all(owner, ts.isIdentifier).filter(at => at.text === name.text && at !== name && !isProperty(at))
  return uses.some(at => {
    const isCalled = ts.isCallExpression(at.parent) && (at.parent.expression === at || endsWithCall(at.parent))
    if (!isCalled) return true
    for (let up: ts.Node = at; up !== owner; up = up.parent)
      if (isFunction(up) && up !== node && outlives(up, owner, seen)) return true
    return false
  })
}

const isAsync = (node: ts.Node) => hasModifier(node, ts.SyntaxKind.AsyncKeyword)

function endsWithCall({ expression }: ts.CallExpression): boolean {
  return ts.isPropertyAccessExpression(expression) && endingWithCall.has(expression.name.text)
}

const endingWithCall = words(`
  map flatMap filter find findIndex findLast some every forEach reduce sort toSorted replace replaceAll from groupBy`)

/** Fields, properties and variables that hold one of the containers with these names. */
function usesOf(file: ts.SourceFile, names: ReadonlySet<string>): Site[] {
  return all(file, isMade)
    .filter(({ expression }) => ts.isIdentifier(expression) && names.has(expression.text))
    .map(made => ({ path: file.fileName, name: holderOf(made) }))
}

function holderOf(made: ts.CallExpression | ts.NewExpression): string {
  for (let at: ts.Node | undefined = made; at !== undefined; at = at.parent) {
    if (ts.isBinaryExpression(at) && thisProperty(at.left) !== null)
      return [functionName(at)?.split('.')[0] ?? null, thisProperty(at.left)].filter(name => name !== null).join('.')
    if (ts.isPropertyDeclaration(at))
      return [at.parent.name?.getText() ?? null, at.name.getText()].filter(name => name !== null).join('.')
    if (ts.isVariableDeclaration(at) || ts.isPropertyAssignment(at)) {
      const owner = functionAround(at)
      const name = at.name.getText()
      return owner === null ? name : [functionName(owner), name].filter(part => part !== null).join('.')
    }
  }
  return [functionName(made), calleeOf(made)].filter(name => name !== null).join('.')
}
