import { Checkbox, EmptyState, EmptyStateBody } from '@patternfly/react-core';
import { Table, Tbody, Th, Thead, Tr } from '@patternfly/react-table';
import { useVirtualizer } from '@tanstack/react-virtual';
import { Fragment, memo, type ReactNode, useCallback, useMemo, useRef } from 'react';
import { useSearchParams } from 'react-router';

export interface Column<T> {
  title: string;
  /** width of the column, in em. Columns without one share what is left. */
  width?: number;
  cell: (row: T) => ReactNode;
  /** by is what the column is sorted by; without it the column is not sorted. */
  by?: (row: T) => string | number;
  wrap?: boolean;
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: readonly T[] | undefined;
  keyOf: (row: T) => string;
  empty: string;
  selected?: { keys: ReadonlySet<string>; onChange: (keys: Set<string>) => void };
  /** below is shown in a row of its own below a row. */
  below?: (row: T) => ReactNode;
  /** failure is why there are no rows. */
  failure?: string;
  /** sortKey names the table's order in the address. */
  sortKey?: string;
}

/** From so many rows on only those in sight are drawn, in a box that scrolls. */
const many = 60;
const rowHeight = 33;
/** Widths in em: of the column with check boxes, and the least of a column that has none of its own. */
const checkWidth = 3, leastWidth = 10;

interface RowProps<T> {
  columns: readonly Column<T>[];
  row: T;
  label: string;
  id: string;
  index: number;
  /** selected is left out where rows cannot be selected. */
  selected?: boolean;
  onSelect: (key: string, on: boolean) => void;
}

/** Row is drawn again only when its object, the columns or its selection have changed. It is made of plain elements: PatternFly's Td measures
 * itself after each drawing, for which the browser has to lay the page out before the frame is done. */
const Row = memo(function Row<T>({ columns, row, label, id, index, selected, onSelect }: RowProps<T>) {
  return (
    <tr className="pf-v6-c-table__tr" aria-rowindex={index + 2}>
      {selected !== undefined && (
        <td className="pf-v6-c-table__td"><Checkbox id={`${label}-${id}`} aria-label={`Select ${id}`} isChecked={selected} onChange={(_, on) => onSelect(id, on)} /></td>
      )}
      {columns.map((c) => <td key={c.title} className={`pf-v6-c-table__td${c.wrap ? ' ak-wrap' : ''}`} data-label={c.title}>{c.cell(row)}</td>)}
    </tr>
  );
}) as <T>(props: RowProps<T>) => ReactNode;

/** DataTable is a dense table. The order is in the address, so that a link shows the same. */
export function DataTable<T>({ label, columns, rows, keyOf, empty, selected, below, failure, sortKey = 'sort' }: Props<T>) {
  const [params, setParams] = useSearchParams();
  const order = params.get(sortKey) ?? '';
  const descending = order.startsWith('-');
  const by = columns.find((c) => c.by && c.title === order.replace(/^-/, ''))?.by;
  const sorted = useMemo(() => {
    if (!rows || !by) return rows;
    const sign = descending ? -1 : 1;
    return [...rows].sort((a, b) => {
      const x = by(a), y = by(b);
      return sign * (typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true }));
    });
  }, [rows, by, descending]);
  const keys = selected?.keys, onChange = selected?.onChange;
  const toggle = useCallback((key: string, on: boolean) => {
    const next = new Set(keys);
    if (on) next.add(key);
    else next.delete(key);
    onChange?.(next);
  }, [keys, onChange]);
  const box = useRef<HTMLDivElement>(null);
  const virtual = (sorted?.length ?? 0) > many;
  const virtualizer = useVirtualizer({ count: virtual ? (sorted?.length ?? 0) : 0, getScrollElement: () => box.current,
    estimateSize: () => rowHeight, overscan: 12 });
  if (!sorted) return <p className="ak-quiet" role="status">{failure ?? 'Loading…'}</p>;
  if (sorted.length === 0) return <EmptyState variant="xs"><EmptyStateBody>{empty}</EmptyStateBody></EmptyState>;

  const items = virtualizer.getVirtualItems();
  const shown = virtual ? items.map((i) => i.index) : sorted.map((_, i) => i);
  const before = virtual ? (items[0]?.start ?? 0) : 0;
  const after = virtual ? virtualizer.getTotalSize() - (items.at(-1)?.end ?? 0) : 0;
  const least = columns.reduce((sum, c) => sum + (c.width ?? leastWidth), selected ? checkWidth : 0);
  const span = columns.length + (selected ? 1 : 0);
  const sort = (title: string) => setParams((p) => (p.set(sortKey, order === title ? `-${title}` : title), p), { replace: true });
  const all = selected && sorted.every((r) => selected.keys.has(keyOf(r)));
  const table = (
    <Table variant="compact" aria-label={label} aria-rowcount={sorted.length + 1} gridBreakPoint="" style={{ minWidth: `${least}em` }}>
      <colgroup>
        {selected && <col style={{ width: `${checkWidth}em` }} />}
        {columns.map((c) => <col key={c.title} style={c.width ? { width: `${c.width}em` } : undefined} />)}
      </colgroup>
      <Thead>
        <Tr>
          {selected && (
            <Th>
              <Checkbox id={`${label}-all`} aria-label="Select all" isChecked={all}
                onChange={(_, on) => selected.onChange(new Set(on ? sorted.map(keyOf) : []))} />
            </Th>
          )}
          {columns.map((c, i) => (
            <Th key={c.title} sort={c.by && { columnIndex: i, sortBy: order.replace(/^-/, '') === c.title ? { index: i, direction: descending ? 'desc' : 'asc' } : {},
                onSort: () => sort(c.title) }}>
              {c.title}
            </Th>
          ))}
        </Tr>
      </Thead>
      <Tbody>
        {before > 0 && <tr aria-hidden="true"><td colSpan={span} style={{ height: before, padding: 0 }} /></tr>}
        {shown.map((index) => {
          const row = sorted[index];
          if (row === undefined) return null;
          const key = keyOf(row);
          const more = below?.(row);
          return (
            <Fragment key={key}>
              <Row columns={columns} row={row} label={label} id={key} index={index} selected={keys?.has(key)} onSelect={toggle} />
              {more && <tr className="pf-v6-c-table__tr"><td colSpan={span} className="pf-v6-c-table__td ak-wrap">{more}</td></tr>}
            </Fragment>
          );
        })}
        {after > 0 && <tr aria-hidden="true"><td colSpan={span} style={{ height: after, padding: 0 }} /></tr>}
      </Tbody>
    </Table>
  );
  if (!virtual) return <div className="ak-table">{table}</div>;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a box that scrolls is reached by keyboard
    <div ref={box} className="ak-table ak-scroll" tabIndex={0} role="region" aria-label={`${label}, scrolling`}>{table}</div>
  );
}
