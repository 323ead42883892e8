import { MenuToggle, Select, SelectList, SelectOption } from '@patternfly/react-core';
import { type ReactNode, useMemo, useState } from 'react';
import type { Column } from './table';

/** A column that can be left out, and whether it is at first. */
export interface Optional<T> extends Column<T> {
  /** fixed columns are always there. */
  fixed?: boolean;
  /** away columns are there when somebody asks for them. */
  away?: boolean;
}

/** chosen are the titles that a browser has kept, undefined where it has kept none, or something else. */
function chosen(key: string): string[] | undefined {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(key) ?? 'null');
    return Array.isArray(kept) ? kept.map(String) : undefined;
  } catch {
    return undefined;
  }
}

/** useColumns are the columns of a table that the user has chosen, and the menu to choose them by. The browser keeps the choice. */
export function useColumns<T>(table: string, all: Optional<T>[]): [Column<T>[], ReactNode] {
  const key = `columns of ${table}`;
  const [titles, setTitles] = useState(() => chosen(key) ?? all.filter((c) => !c.away).map((c) => c.title));
  const [open, setOpen] = useState(false);
  const toggle = (title: string) => {
    const next = titles.includes(title) ? titles.filter((t) => t !== title) : [...titles, title];
    localStorage.setItem(key, JSON.stringify(next));
    setTitles(next);
  };
  const menu = (
    <Select role="menu" isOpen={open} onOpenChange={setOpen} onSelect={(_, title) => toggle(String(title))} popperProps={{ appendTo: () => document.body, position: 'right' }}
      toggle={(ref) => <MenuToggle ref={ref} isExpanded={open} onClick={() => setOpen(!open)}>Columns</MenuToggle>}>
      <SelectList aria-label="Columns">
        {all.filter((c) => !c.fixed).map((c) => <SelectOption key={c.title} hasCheckbox value={c.title} isSelected={titles.includes(c.title)}>{c.title}</SelectOption>)}
      </SelectList>
    </Select>
  );
  const shown = useMemo(() => all.filter((c) => c.fixed || titles.includes(c.title)), [all, titles]);
  return [shown, menu];
}
