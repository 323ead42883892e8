package standalonetest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// roleVariable turns this test binary into the program of a test Pod.
const roleVariable = "STANDALONETEST_POD"

// testpod is what runs inside test Pods. Its first argument says what to do.
func testpod(args []string) int {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	switch args[0] {
	case "exit": // exit CODE, after printing the rest of the arguments
		fmt.Println(strings.Join(args[2:], " "))
		code := 0
		_, _ = fmt.Sscan(args[1], &code)
		return code
	case "serve": // until SIGTERM, then exit with code 7
		fmt.Println("serving")
		waitSignal()
		fmt.Println("got SIGTERM")
		return 7
	case "tell": // tell FILE: make it at SIGTERM
		fmt.Println("serving")
		waitSignal()
		if err := os.WriteFile(args[1], nil, 0o600); err != nil {
			fmt.Println(err)
		}
		return 0
	case "alone": // alone FILE: say at SIGTERM whether FILE comes within a second
		fmt.Println("serving")
		waitSignal()
		fmt.Println("alone:", !appears(args[1], time.Second))
		return 0
	case "stubborn": // ignore SIGTERM
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("serving")
		forever()
	case "http": // http ADDR FILE: healthy while FILE exists
		return serveHTTP(args[1], args[2])
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
		fmt.Println("end of env")
		waitSignal()
		return 0
	case "cat": // print the file at a Pod path, again whenever it changes
		return catForever(args[1])
	case "count": // count FILE: print one more each run, fail until the third
		return count(resolve(args[1]))
	case "spawn": // leave a grandchild in a session of its own
		return spawn()
	case "api": // ask the API server with the Pod's own credentials
		return askAPI()
	case "daemon", "control": // play the manager
		return serveManager(args)
	case "linger": // keep running as grandchild
		forever()
	}
	fmt.Fprintln(os.Stderr, "testpod: unknown role", args[0])
	return 2
}

// appears waits for a file.
func appears(file string, within time.Duration) bool {
	tick, bound := time.NewTicker(10*time.Millisecond), time.After(within)
	defer tick.Stop()
	for {
		if _, err := os.Stat(file); err == nil {
			return true
		}
		select {
		case <-tick.C:
		case <-bound:
			return false
		}
	}
}

func waitSignal() {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGTERM)
	<-ch
}

// resolve maps a Pod's path as package hostpath does: the longest prefix in ANKOLE_MOUNTS.
func resolve(path string) string {
	mounts := map[string]string{}
	if err := json.Unmarshal([]byte(os.Getenv("ANKOLE_MOUNTS")), &mounts); err != nil {
		return path
	}
	best, out := "", path
	for at, real := range mounts {
		if (path == at || strings.HasPrefix(path, strings.TrimSuffix(at, "/")+"/")) && len(at) > len(best) {
			best, out = at, filepath.Join(real, strings.TrimPrefix(path, at))
		}
	}
	return out
}

func serveHTTP(addr, file string) int {
	l, err := net.Listen("tcp", os.Getenv("POD_IP")+addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("serving")
	err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(resolve(file)); err != nil {
			http.Error(w, "unhealthy", http.StatusServiceUnavailable)
		}
	}))
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func catForever(path string) int {
	last := ""
	for range time.Tick(20 * time.Millisecond) {
		data, err := os.ReadFile(resolve(path))
		text := string(data)
		if err != nil {
			text = "missing"
		}
		if text != last {
			fmt.Printf("content: %s\n", text)
			last = text
		}
	}
	return 0
}

func count(file string) int {
	data, _ := os.ReadFile(file)
	if err := os.WriteFile(file, append(data, 'x'), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fmt.Println("run", len(data)+1)
	if len(data)+1 < 3 {
		return 1
	}
	return 0
}

func spawn() int {
	cmd := exec.Command(os.Args[0], "linger")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("grandchild", cmd.Process.Pid)
	waitSignal()
	return 0
}

func askAPI() int {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(context.Background(), selfReview(),
		metav1.CreateOptions{})
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println("I am", review.Status.UserInfo.Username)
	return 0
}

// forever waits in the kernel: without cgo a program whose goroutines all wait for each other is
// ended as a deadlock.
func forever() {
	for {
		_ = syscall.Pause() // returns on a signal that is handled
	}
}
