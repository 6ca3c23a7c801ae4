;;; What a Lisp program asks of its machine: tables, sorting, garbage, big numbers, conditions.
;;; Argument: scale, or `mistake` for an error that nobody handles.

(defun table-sum (n)
  (let ((table (make-hash-table :test 'equal)) (state 42) (sum 0))
    (dotimes (i n)
      (setf state (mod (+ (* state 1103515245) 12345) 2147483648))
      (incf (gethash (format nil "~36r" (mod state 5000)) table 0)))
    (let ((words (sort (loop for word being the hash-keys of table collect word) #'string<)))
      (loop for word in words for i from 1
            do (setf sum (mod (+ (* sum 31) (* i (gethash word table))) 1000000007))))
    sum))

(defun trees (depth)
  (if (zerop depth) (list nil nil) (list (trees (1- depth)) (trees (1- depth)))))

(defun nodes (tree)
  (if (first tree) (+ 1 (nodes (first tree)) (nodes (second tree))) 1))

(defun factorial-digits (n)
  (length (princ-to-string (loop with product = 1 for i from 1 to n
                                 do (setf product (* product i)) finally (return product)))))

(defun handled (n)
  (loop for i below n
        count (handler-case (progn (aref (vector 1 2 3) (mod (* i 7) 5)) nil)
                (error () t))))

(defun main ()
  (let ((word (second sb-ext:*posix-argv*)))
    (sb-ext:disable-debugger)
    (when (equal word "mistake")
      (error "nobody handles this"))
    (let ((scale (parse-integer (or word "1"))))
      (format t "tables ~d~%trees ~d~%digits ~d~%handled ~d~%"
              (table-sum (* scale 20000))
              (loop repeat (* scale 10) sum (nodes (trees 12)))
              (factorial-digits (* scale 500))
              (handled (* scale 1000)))
      (finish-output)
      (sb-ext:exit :code 4 :abort t))))
