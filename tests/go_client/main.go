// Submits a document and watches its job to the end, then submits another and cancels its job.
//
// Usage: client ADDRESS DOCUMENT_TO_FINISH DOCUMENT_TO_CANCEL. Prints one JSON object.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	musterv1 "muster.dev/client/gen/muster/v1"
)

// report is what the test reads.
type report struct {
	Events    []string `json:"events"`
	Finished  string   `json:"finished"`
	ExitCodes []int32  `json:"exit_codes"`
	Cancelled string   `json:"cancelled"`
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	result, err := run(ctx, os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address, finishing, cancelled string) (*report, error) {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	jobs := musterv1.NewJobServiceClient(connection)
	result := &report{}

	first, err := submit(ctx, jobs, finishing)
	if err != nil {
		return nil, err
	}
	job, err := watch(ctx, jobs, first, func(event *musterv1.WatchJobResponse) error {
		result.Events = append(result.Events, event.GetType().String())
		return nil
	})
	if err != nil {
		return nil, err
	}
	result.Finished = job.GetStatus().GetPhase().String()
	for _, replica := range job.GetStatus().GetReplicas() {
		result.ExitCodes = append(result.ExitCodes, replica.GetExitCode())
	}

	second, err := submit(ctx, jobs, cancelled)
	if err != nil {
		return nil, err
	}
	asked := false
	job, err = watch(ctx, jobs, second, func(event *musterv1.WatchJobResponse) error {
		if asked || event.GetJob().GetStatus().GetPhase() != musterv1.Phase_PHASE_RUNNING {
			return nil
		}
		asked = true
		_, err := jobs.CancelJob(ctx, &musterv1.CancelJobRequest{
			Job:       byID(second),
			RequestId: "go-cancel",
			Message:   "seen enough",
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	result.Cancelled = job.GetStatus().GetPhase().String()
	return result, nil
}

// submit submits the document in a file and returns the id of its only job.
func submit(ctx context.Context, jobs musterv1.JobServiceClient, path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	answer, err := jobs.SubmitJob(ctx, &musterv1.SubmitJobRequest{
		RequestId: fmt.Sprintf("go-%d", time.Now().UnixNano()),
		Source:    &musterv1.SubmitJobRequest_Document{Document: &musterv1.Document{Text: string(text), SourceName: path}},
	})
	if err != nil {
		return "", err
	}
	if len(answer.GetJobs()) != 1 || !answer.GetJobs()[0].GetValidated() {
		return "", fmt.Errorf("unexpected answer: %v", answer)
	}
	return answer.GetJobs()[0].GetJobId(), nil
}

// watch calls handle for each event until the stream ends, and returns the last state of the job.
func watch(
	ctx context.Context,
	jobs musterv1.JobServiceClient,
	id string,
	handle func(*musterv1.WatchJobResponse) error,
) (*musterv1.Job, error) {
	stream, err := jobs.WatchJob(ctx, &musterv1.WatchJobRequest{Job: byID(id)})
	if err != nil {
		return nil, err
	}
	var last *musterv1.Job
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return nil, err
		}
		if event.GetJob() != nil {
			last = event.GetJob()
		}
		if err := handle(event); err != nil {
			return nil, err
		}
	}
}

func byID(id string) *musterv1.JobRef {
	return &musterv1.JobRef{Ref: &musterv1.JobRef_JobId{JobId: id}}
}
