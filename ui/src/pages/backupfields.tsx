import { Checkbox, FormGroup, TextInput } from '@patternfly/react-core';
import { pairsOf } from '../format';

/** backupFields are what an order of a backup says beside the snapshot. */
export const backupFields = (full: boolean, labels: string) => ({ backupMode: full ? 'full' : 'incremental', labels: pairsOf(labels) });

interface Props {
  full: boolean;
  setFull: (on: boolean) => void;
  labels: string;
  setLabels: (text: string) => void;
}

export function BackupFields({ full, setFull, labels, setLabels }: Props) {
  return (
    <>
      <FormGroup label="Labels of the backup, such as app=web, tier=1" fieldId="labels"><TextInput id="labels" value={labels} onChange={(_, v) => setLabels(v)} /></FormGroup>
      <Checkbox id="full" label="Send everything again" isChecked={full} onChange={(_, on) => setFull(on)} />
    </>
  );
}
