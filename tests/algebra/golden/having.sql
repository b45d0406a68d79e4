-- SELECT a, sum(b) AS total FROM r GROUP BY a HAVING count(*) > 1

-- @: sums, key a, changes paired
SELECT
  `a`,
  `total`,
  `_hw_rows`,
  `_hw_total_count`,
  `_hw_total_sum`,
  `_hw_shown`,
  `_hw_old_a`,
  `_hw_old_total`,
  `_hw_old__hw_rows`,
  `_hw_old__hw_total_count`,
  `_hw_old__hw_total_sum`,
  `_hw_old__hw_shown`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`
FROM (
  SELECT
    `a` AS `a`,
    (
      CASE WHEN `_hw_total_count` = 0 THEN NULL ELSE `_hw_total_sum` END
    ) AS `total`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_total_count` AS `_hw_total_count`,
    `_hw_total_sum` AS `_hw_total_sum`,
    COALESCE(`_hw_rows` > 1, FALSE) AS `_hw_shown`,
    `_hw_old_a` AS `_hw_old_a`,
    `_hw_old_total` AS `_hw_old_total`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_old__hw_total_count` AS `_hw_old__hw_total_count`,
    `_hw_old__hw_total_sum` AS `_hw_old__hw_total_sum`,
    `_hw_old__hw_shown` AS `_hw_old__hw_shown`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    `_hw_rows` > 0 AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`
  FROM (
    SELECT
      `a` AS `a`,
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      CAST((
        COALESCE(`_hw_old__hw_total_count`, 0) + COALESCE(`_hw_d__hw_total_count`, 0)
      ) AS BIGINT) AS `_hw_total_count`,
      CAST(CASE
        WHEN (
          COALESCE(`_hw_old__hw_total_count`, 0) + COALESCE(`_hw_d__hw_total_count`, 0)
        ) = 0
        THEN NULL
        ELSE (
          COALESCE(`_hw_old__hw_total_sum`, 0) + COALESCE(`_hw_d__hw_total_sum`, 0)
        )
      END AS DECIMAL(38, 0)) AS `_hw_total_sum`,
      `_hw_old_a` AS `_hw_old_a`,
      `_hw_old_total` AS `_hw_old_total`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_old__hw_total_count` AS `_hw_old__hw_total_count`,
      `_hw_old__hw_total_sum` AS `_hw_old__hw_total_sum`,
      `_hw_old__hw_shown` AS `_hw_old__hw_shown`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `a`,
        `_hw_d__hw_rows`,
        `_hw_d__hw_total_count`,
        `_hw_d__hw_total_sum`,
        `_hw_old_a`,
        `_hw_old_total`,
        `_hw_old__hw_rows`,
        `_hw_old__hw_total_count`,
        `_hw_old__hw_total_sum`,
        `_hw_old__hw_shown`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          `a`,
          SUM(`_hw_w`) AS `_hw_d__hw_rows`,
          SUM(CASE WHEN NOT `b` IS NULL THEN `_hw_w` ELSE 0 END) AS `_hw_d__hw_total_count`,
          SUM(CASE WHEN `_hw_w` < 0 THEN -(
            `b`
          ) ELSE `b` END) AS `_hw_d__hw_total_sum`
        FROM (
          SELECT
            `a` AS `a`,
            `b` AS `b`,
            `rowid` AS `r_rowid`,
            `_hw_w`
          FROM `r@delta`
        ) AS _t
        GROUP BY
          `a`
      ) AS _l
      LEFT JOIN (
        SELECT
          `a` AS `_hw_old_a`,
          `total` AS `_hw_old_total`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_total_count` AS `_hw_old__hw_total_count`,
          `_hw_total_sum` AS `_hw_old__hw_total_sum`,
          `_hw_shown` AS `_hw_old__hw_shown`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@@old`
      ) AS _r
        ON `a` IS NOT DISTINCT FROM `_hw_old_a`
    ) AS _t
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND (
        `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
        AND `_hw_total_count` IS NOT DISTINCT FROM `_hw_old__hw_total_count`
        AND `_hw_total_sum` IS NOT DISTINCT FROM `_hw_old__hw_total_sum`
      )
    )
  )
