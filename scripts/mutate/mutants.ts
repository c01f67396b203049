// Small faults for one source file: boundaries, negations, constants, operators and removed calls. Pure.

import ts from '@typescript/typescript6'

export type Mutant = {
  readonly kind: MutantKind
  /** From 1. */
  readonly line: number
  /** Offsets into the source text; `replacement` takes the place of what is between them. */
  readonly start: number
  readonly end: number
  readonly replacement: string
}

export type MutantKind = 'boundary' | 'negation' | 'logic' | 'arithmetic' | 'constant' | 'removed call' | 'removed row'

type Swap = { readonly kind: MutantKind; readonly replacement: string }

const SWAPS: ReadonlyMap<ts.SyntaxKind, Swap> = new Map([
  [ts.SyntaxKind.LessThanToken, { kind: 'boundary', replacement: '<=' }],
  [ts.SyntaxKind.LessThanEqualsToken, { kind: 'boundary', replacement: '<' }],
  [ts.SyntaxKind.GreaterThanToken, { kind: 'boundary', replacement: '>=' }],
  [ts.SyntaxKind.GreaterThanEqualsToken, { kind: 'boundary', replacement: '>' }],
  [ts.SyntaxKind.EqualsEqualsEqualsToken, { kind: 'negation', replacement: '!==' }],
  [ts.SyntaxKind.ExclamationEqualsEqualsToken, { kind: 'negation', replacement: '===' }],
  [ts.SyntaxKind.AmpersandAmpersandToken, { kind: 'logic', replacement: '||' }],
  [ts.SyntaxKind.BarBarToken, { kind: 'logic', replacement: '&&' }],
  [ts.SyntaxKind.PlusToken, { kind: 'arithmetic', replacement: '-' }],
  [ts.SyntaxKind.MinusToken, { kind: 'arithmetic', replacement: '+' }],
  [ts.SyntaxKind.AsteriskToken, { kind: 'arithmetic', replacement: '/' }],
  [ts.SyntaxKind.SlashToken, { kind: 'arithmetic', replacement: '*' }],
])

/** Calls that state an invariant or write a log line: without them no result changes. */
const UNOBSERVABLE = /^(?:assert|log\.\w+|this\.#?log\.\w+|deps\.log\.\w+|(?:this\.#?deps\.)?log\.\w+)$/

/** Returns every mutant of a TypeScript source, in the order of the text. Types, imports and messages get none. */
export function mutantsOf(source: string, path = 'source.ts'): Mutant[] {
  const kind = path.endsWith('.tsx') ? ts.ScriptKind.TSX : ts.ScriptKind.TS
  const file = ts.createSourceFile(path, source, ts.ScriptTarget.Latest, true, kind)
  const mutants: Mutant[] = []
  const add = (node: ts.Node, kind: MutantKind, replacement: string) => {
    const start = node.getStart(file)
    const line = file.getLineAndCharacterOfPosition(start).line + 1
    mutants.push({ kind, line, start, end: node.getEnd(), replacement })
  }
  const visit = (node: ts.Node): void => {
    if (isWithoutFaults(node)) return
    if (ts.isBinaryExpression(node)) {
      const swap = SWAPS.get(node.operatorToken.kind)
      // A sum of texts is no arithmetic, and a minus there is NaN, which any test sees.
      if (swap !== undefined && !isTextSum(node)) add(node.operatorToken, swap.kind, swap.replacement)
    } else if (ts.isPrefixUnaryExpression(node) && node.operator === ts.SyntaxKind.ExclamationToken) {
      add(node, 'negation', `(${node.operand.getText(file)})`)
    } else if (ts.isNumericLiteral(node) && !isFallback(node)) {
      add(node, 'constant', otherNumber(node))
    } else if (node.kind === ts.SyntaxKind.TrueKeyword) {
      add(node, 'constant', 'false')
    } else if (node.kind === ts.SyntaxKind.FalseKeyword) {
      add(node, 'constant', 'true')
    } else if (ts.isExpressionStatement(node) && isRemovable(node.expression, file)) {
      add(node, 'removed call', ';')
    }
    if (isRow(node)) addRow(node)
    ts.forEachChild(node, visit)
  }
  /** A row goes with the comma behind it. */
  const addRow = (node: ts.Node) => {
    const comma = /^\s*,/.exec(source.slice(node.getEnd()))?.[0].length ?? 0
    const start = node.getStart(file)
    const line = file.getLineAndCharacterOfPosition(start).line + 1
    mutants.push({ kind: 'removed row', line, start, end: node.getEnd() + comma, replacement: '' })
  }
  visit(file)
  return mutants.toSorted((a, b) => a.start - b.start || a.end - b.end)
}

export function withMutant(source: string, { start, end, replacement }: Mutant): string {
  return source.slice(0, start) + replacement + source.slice(end)
}

/** One more for a small number; twice as much for a large one, where one more changes no behaviour that matters. */
function otherNumber(node: ts.NumericLiteral): string {
  const text = node.getText()
  return Number(text.replaceAll('_', '')) <= 16 ? `(${text} + 1)` : `(${text} * 2)`
}

/** Whether the node is a row of a table: an element or property in a literal that a module-level constant holds. */
function isRow(node: ts.Node): boolean {
  const isElement = ts.isArrayLiteralExpression(node.parent ?? node) && !ts.isSpreadElement(node)
  if (!isElement && !ts.isPropertyAssignment(node)) return false
  for (let above = node.parent; above !== undefined; above = above.parent) {
    if (ts.isFunctionLike(above) || ts.isClassLike(above)) return false
    if (ts.isVariableStatement(above)) return ts.isSourceFile(above.parent)
  }
  return false
}

/** The number behind `??` stands mostly for an element that is always there: the compiler wants it, no run needs it. */
function isFallback(node: ts.NumericLiteral): boolean {
  const { parent } = node
  return ts.isBinaryExpression(parent) && parent.operatorToken.kind === ts.SyntaxKind.QuestionQuestionToken
}

/** Types do not run; the arguments of an assertion or a log call decide nothing. */
function isWithoutFaults(node: ts.Node): boolean {
  if (ts.isTypeNode(node) || ts.isTypeAliasDeclaration(node) || ts.isInterfaceDeclaration(node)) return true
  if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return true
  return ts.isCallExpression(node) && UNOBSERVABLE.test(node.expression.getText())
}

function isRemovable(expression: ts.Expression, file: ts.SourceFile): boolean {
  const call = ts.isAwaitExpression(expression) ? expression.expression : expression
  return ts.isCallExpression(call) && !UNOBSERVABLE.test(call.expression.getText(file))
}

function isTextSum({ operatorToken, left, right }: ts.BinaryExpression): boolean {
  const isText = (side: ts.Expression): boolean =>
    ts.isStringLiteralLike(side) || ts.isTemplateExpression(side) || (ts.isBinaryExpression(side) && isTextSum(side))
  return operatorToken.kind === ts.SyntaxKind.PlusToken && (isText(left) || isText(right))
}
