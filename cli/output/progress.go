package output

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"ankole.storage/rest/findings"
)

// barWidth is the width of a progress bar in characters.
const barWidth = 30

// UnknownPercent is a progress that cannot be measured; a spinner stands for it.
const UnknownPercent = findings.UnknownPercent

// refreshEvery is how often a drawn line is drawn again: often enough for a spinner, seldom enough
// to cost nothing.
const refreshEvery = 120 * time.Millisecond

// printEvery is the least time between two lines where nothing can be drawn: a log wants the
// course, not every count.
const printEvery = time.Second

// Line shows how far one thing is: a line that is drawn again and again on a terminal, and
// elsewhere one line per change.
type Line struct {
	w io.Writer

	mu      sync.Mutex
	text    string
	percent int
	printed string
	last    time.Time
	frame   int
	began   time.Time
	stopped sync.Once

	bars *mpb.Progress
	bar  *mpb.Bar
}

// NewLine starts a line. The caller calls stop.
func NewLine(w io.Writer, terminal bool) *Line {
	p := &Line{w: w, text: "looking", percent: UnknownPercent, began: time.Now()}
	if terminal {
		p.bars = mpb.New(mpb.WithOutput(w), mpb.WithRefreshRate(refreshEvery), mpb.WithAutoRefresh())
		p.bar = p.bars.New(1, mpb.NopStyle(), mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return p.line() })))
	}
	return p
}

// NewSlowLine is newProgress for what is mostly quick: nothing is said before there is something to
// wait for.
func NewSlowLine(w io.Writer, terminal bool) *Line {
	p := NewLine(w, terminal)
	p.last = p.began
	return p
}

// Set says where things stand; percent is unknownPercent or 0 to 100.
func (p *Line) Set(percent int, format string, args ...any) {
	p.mu.Lock()
	p.text, p.percent = fmt.Sprintf(format, args...), percent
	line := p.text
	if percent != UnknownPercent {
		line = fmt.Sprintf("[%3d%%] %s", percent, line)
	}
	due := line != p.printed && time.Since(p.last) >= printEvery
	if due {
		p.printed, p.last = line, time.Now()
	}
	p.mu.Unlock()
	if p.bars == nil && due {
		fmt.Fprintln(p.w, line)
	}
}

// Stop takes the line away.
func (p *Line) Stop() {
	p.stopped.Do(func() {
		if p.bars == nil {
			return
		}
		p.bar.Abort(true)
		p.bars.Wait()
	})
}

var spinner = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// line is what a terminal shows.
func (p *Line) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frame++
	seconds := int(time.Since(p.began).Seconds())
	if p.percent == UnknownPercent {
		return fmt.Sprintf("%s %s (%ds)", spinner[p.frame%len(spinner)], p.text, seconds)
	}
	filled := min(max(p.percent, 0), 100) * barWidth / 100
	return fmt.Sprintf("[%s%s] %3d%% %s (%ds)", strings.Repeat("█", filled), strings.Repeat("░", barWidth-filled),
		p.percent, p.text, seconds)
}
