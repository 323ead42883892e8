package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ankole.storage/dataplane/offline"
)

// repairFlags say what a repair may do.
type repairFlags struct {
	confirming
	from  string
	force bool
}

// repaired is the structured output of a repair.
type repaired struct {
	*offline.RepairPlan
	Done bool `json:"done"`
}

// repair shows what would be written, asks, and writes it.
func (a *app) repair(ctx context.Context, in io.Reader, f *offlineFlags, dir string, r repairFlags) error {
	d, err := f.open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // only a lock
	source, err := f.open(r.from)
	if err != nil {
		return err
	}
	defer source.Close() // only a lock
	p := a.slow()
	defer p.stop()
	plan, err := offline.PlanRepair(ctx, d, source, r.force, bytesOf(p, "comparing"))
	if err != nil {
		return err
	}
	p.stop()
	if err := a.agree(in, plan, r.confirming); err != nil {
		return err
	}
	kept := errKept
	if len(plan.Kept) == 0 {
		kept = nil
	}
	if a.dryRun {
		if a.output != outputTable {
			return a.encode(repaired{plan, false})
		}
		return nil
	}
	if len(plan.Items) > 0 {
		w := a.slow()
		defer w.stop()
		if err := plan.Run(ctx, bytesOf(w, "repairing "+dir)); err != nil {
			return fmt.Errorf("%w\nrun the same command again to go on; until then keep %s out of use", err, dir)
		}
		w.stop()
	}
	if a.output != outputTable {
		return errors.Join(a.encode(repaired{plan, kept == nil}), kept)
	}
	if len(plan.Items) > 0 && kept == nil {
		fmt.Fprintf(a.out, "%s repaired: it has what %s has\n", dir, r.from)
	}
	return kept
}

// errKept is the error of a repair that has left something out: the plan has said what and why.
var errKept = errors.New("not everything that differs was repaired, because of checksums")

// agree prints the plan and asks for consent where there is something to do.
func (a *app) agree(in io.Reader, plan *offline.RepairPlan, y confirming) error {
	if a.output == outputTable {
		writePlan(a.out, plan)
	}
	if len(plan.Items) == 0 {
		return nil
	}
	return a.confirm(in, y, "Write to the directory now?", count(len(plan.Items), "snapshot")+" of "+plan.Damaged+
		" would be repaired")
}

// writePlan says what a repair would do.
func writePlan(w io.Writer, plan *offline.RepairPlan) {
	if len(plan.Items)+len(plan.Kept) == 0 {
		fmt.Fprintf(w, "%s needs no repair: it has what %s has\n", oneLine(plan.Damaged), oneLine(plan.Source))
	}
	for _, i := range plan.Items {
		fmt.Fprintf(w, "%s: %s of %s differ from %s\n", oneLine(i.Snapshot), size(i.Bytes), oneLine(plan.Damaged),
			oneLine(plan.Source))
	}
	if len(plan.Items) > 0 {
		fmt.Fprint(w, wrap("What differs in a snapshot may be read from an older one and is then repaired there, "+
			"once. Blocks are written to "+
			oneLine(plan.Damaged)+" only.", "", textWidth))
	}
	for _, k := range plan.Kept {
		fmt.Fprint(w, wrap(fmt.Sprintf("not repaired: %s of %s: %s", size(k.Bytes), oneLine(k.Snapshot), k.Reason), "    ",
			textWidth))
	}
	for _, s := range plan.Warnings {
		fmt.Fprint(w, wrap("warning: "+oneLine(s), "    ", textWidth))
	}
}
