package chain

import (
	"fmt"
	"testing"

	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// An account of an absent member that takes more than its share of the file is damage: with it
// those of others would not fit.
func TestAccountBeyondItsShareIsForgotten(t *testing.T) {
	for name, grow := range map[string]func(a *Absent){
		"regions": func(a *Absent) { a.Regions.Bits = make([]byte, 36000) },
		"names": func(a *Absent) {
			for i := range 140 {
				a.Changed = append(a.Changed, fmt.Sprintf("%0250d", i))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := memdisk.New()
			ok := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			ok(Create(fs, "/r", Spec{Size: 64 << 20, Self: "v"}, Options{}))
			c, err := Open(fs, "/r", Options{})
			ok(err)
			r := Record{Epoch: 1, Generation: 1, State: MemberRW, Self: "v", Members: []Member{{Name: "v"}}}
			for i := range 4 {
				r.Members = append(r.Members, Member{Name: fmt.Sprintf("%0250d", i)})
			}
			ok(c.WriteRecord(r))
			stamp := c.meta.vm.stamp()
			ok(c.Close())
			f, _, err := openSlotFile(fs, "/r/"+absentName, absentFormat(absentSlotSize(64<<20)), stamp, disk.Mode(0))
			ok(err)
			a := Absent{Member: "gone"}
			grow(&a)
			ok(f.write(encodeAbsent([]Absent{a})))
			ok(f.file.Close())
			c, err = Open(fs, "/r", Options{})
			ok(err)
			if _, there := c.Absent("gone"); there {
				t.Error("the account counts")
			}
			r.Generation, r.Members = 2, r.Members[:1]
			ok(c.WriteRecord(r))
			if _, there := c.Absent(fmt.Sprintf("%0250d", 3)); !there {
				t.Error("no account of a member that is dropped")
			}
			ok(c.Close())
		})
	}
}
