import { Dropdown, DropdownItem, DropdownList, FormGroup, FormSelect, FormSelectOption, MenuToggle } from '@patternfly/react-core';
import { type ReactNode, useState } from 'react';

interface ChoiceProps {
  label: string;
  id: string;
  value: string;
  options: readonly (string | [string, string])[];
  onChange: (value: string) => void;
}

export function Choice({ label, id, value, options, onChange }: ChoiceProps) {
  return (
    <FormGroup label={label} fieldId={id}>
      <FormSelect id={id} value={value} onChange={(_, v) => onChange(v)}>
        {options.map((o) => (typeof o === 'string' ? <FormSelectOption key={o} value={o} label={o} /> : <FormSelectOption key={o[0]} value={o[0]} label={o[1]} />))}
      </FormSelect>
    </FormGroup>
  );
}

export interface Entry {
  name: string;
  run: () => void;
  danger?: boolean;
  /** why says why the entry cannot be chosen now. */
  why?: string;
}

export function Menu({ label, entries, icon }: { label: string; entries: Entry[]; icon?: ReactNode }) {
  const [open, setOpen] = useState(false);
  if (entries.length === 0) return null;
  return (
    <Dropdown isOpen={open} onOpenChange={setOpen} onSelect={() => setOpen(false)} popperProps={{ position: 'right', appendTo: () => document.body }}
      toggle={(ref) => (
        <MenuToggle ref={ref} aria-label={label} variant={icon ? 'plain' : 'default'} isExpanded={open} onClick={() => setOpen(!open)}>{icon ?? label}</MenuToggle>
      )}>
      <DropdownList>
        {entries.map((e) => (
          <DropdownItem key={e.name} isDanger={e.danger} isAriaDisabled={!!e.why} description={e.why} onClick={() => { if (!e.why) e.run(); }}>{e.name}</DropdownItem>
        ))}
      </DropdownList>
    </Dropdown>
  );
}
