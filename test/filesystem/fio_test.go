package filesystem

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ankole.storage/test/lack"
)

// TestFioVerifies lets fio write with checksums and read back, direct and cached, while replicas
// are lost and rebuilt.
func TestFioVerifies(t *testing.T) {
	fio, err := exec.LookPath("fio")
	if err != nil {
		lack.Skip(t, err)
	}
	if !*deep {
		lack.Later(t, "takes its time; run with -deep")
	}
	each(t, func(t *testing.T, fs fileSystem) {
		m := mount(t, fs, 3)
		common := []string{"--rw=randrw", "--size=24M", "--bsrange=512-64k", "--bs_unaligned=0", "--verify=crc32c",
			"--verify_fatal=1", "--verify_backlog=64",
			"--time_based", "--runtime=8", "--thread=0", "--group_reporting", "--verify_state_save=0"}
		jobs := [][]string{
			append([]string{fio, "--name=direct", "--filename=" + filepath.Join(m.dir, "direct"), "--direct=1",
				"--ioengine=libaio", "--iodepth=8"}, common...),
			append([]string{fio, "--name=cached", "--filename=" + filepath.Join(m.dir, "cached"), "--ioengine=psync",
				"--fsync=16"}, common...),
		}
		type end struct {
			out []byte
			err error
		}
		ends := make(chan end, len(jobs))
		for _, j := range jobs {
			c := exec.CommandContext(t.Context(), j[0], j[1:]...)
			go func() {
				out, err := c.CombinedOutput()
				ends <- end{out, err}
			}()
		}
		for i := range 2 {
			m.lose(i, func() { m.snapshot([]string{"a", "b"}[i]) })
		}
		for range jobs {
			e := <-ends
			if e.err != nil {
				t.Errorf("%v\n%s", e.err, e.out)
			}
			for line := range strings.Lines(string(e.out)) {
				if l := strings.TrimSpace(line); strings.HasPrefix(l, "READ:") || strings.HasPrefix(l, "WRITE:") {
					t.Log(l)
				}
			}
		}
		m.end()
	})
}
